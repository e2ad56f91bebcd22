"""What a column can hold: the types, their text, their values."""
