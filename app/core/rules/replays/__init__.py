"""Rows that a delete can remove in the middle of their history: replayed from a log."""
