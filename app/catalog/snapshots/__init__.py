"""Snapshots, the runs they name, and what brought each."""
