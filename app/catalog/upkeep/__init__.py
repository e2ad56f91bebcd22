"""Damage, forgotten keys, checks of the catalog itself, counts."""
