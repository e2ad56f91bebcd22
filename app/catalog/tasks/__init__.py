"""Merges and compactions: queued, claimed under a lease, ended."""
