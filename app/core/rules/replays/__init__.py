"""Rows whose state is a log of their records. A delete can remove the middle of their history, so they are replayed."""
