"""Upkeep of tables: damage, late records, expiry, forgetting."""
