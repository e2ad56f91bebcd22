"""What wears out: damage, late records, what expires or is forgotten."""
