"""Staged batches: written durably, read by key, indexed for lookups."""
