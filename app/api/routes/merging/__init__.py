"""Routes of merges and compactions."""
