"""Databases and tables: created, altered, repaired, dropped; their partitions and rules."""
