"""What a real Trino reads of published tables."""
