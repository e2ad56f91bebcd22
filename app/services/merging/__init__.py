"""Merges and compactions: claimed under a lease, planned as tasks, committed."""
