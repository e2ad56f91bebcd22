"""Pages of one table: its rows, batches, merges, snapshots, files and settings."""
