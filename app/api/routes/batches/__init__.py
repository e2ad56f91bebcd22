"""Routes that accept records and say what became of them."""
