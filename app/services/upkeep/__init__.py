"""Upkeep: what expired is deleted, files are checked, keys are forgotten, backups are made."""
