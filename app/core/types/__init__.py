"""Types of columns: the types, their text, their values."""
