"""Copies of a table that Paimon's own clients read."""
