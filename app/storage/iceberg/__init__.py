"""Iceberg's metadata over the runs of a table: what other engines read (docs/decisions/0053)."""
