"""Processes that serve: opened, counted, watched; their connections and certificates."""
