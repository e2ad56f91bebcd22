"""Routes that accept records and report on their batches."""
