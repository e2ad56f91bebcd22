"""Scans: all rows of a table out of its data files, by token (docs/decisions/0021)."""
