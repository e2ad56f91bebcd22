"""Rules and changes in words: why a row has its values."""
