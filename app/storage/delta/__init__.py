"""Delta logs over the runs of a table, for other engines (docs/decisions/0031)."""
