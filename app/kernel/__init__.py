"""What merges and compactions do to files: pure of catalog, HTTP, Spark and threads (docs/kernel.md)."""
