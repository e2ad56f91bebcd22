"""The merge plan, to which a table's options compile, and its uses."""
