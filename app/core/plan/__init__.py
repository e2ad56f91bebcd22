"""What a table's options come to: the merge plan, and what is done with it."""
