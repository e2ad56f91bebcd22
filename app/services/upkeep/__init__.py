"""Upkeep: expired data is deleted, files are checked, keys are forgotten, backups are made."""
