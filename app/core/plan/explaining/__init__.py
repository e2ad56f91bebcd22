"""Rules and changes in words: why a row shows what it shows."""
