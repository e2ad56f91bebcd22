"""Options of a table: their entries, parsers and compiled values."""
