"""How a table's schema and options change."""
