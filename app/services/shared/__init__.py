"""Shared by use cases of every noun: pages, retries, commits, the executor of merges."""
