"""Rows as readers see them: lookups and scans of a snapshot with what is staged."""
