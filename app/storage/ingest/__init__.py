"""Bodies of records read into the columns of a staging file, a column at a time."""
