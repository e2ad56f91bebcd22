"""The merge plan: one rule for each column, and how older runs enter it."""
