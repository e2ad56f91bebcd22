"""Routes that other engines read a table by."""
