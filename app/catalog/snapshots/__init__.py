"""Snapshots, the runs they name, and the commits that made them."""
