"""Routes for operators: health, metrics, stats, damage, tokens."""
