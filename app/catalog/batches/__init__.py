"""Batches and the records that merges have folded."""
