"""Rows for readers: lookups and scans of a snapshot with its staged records."""
