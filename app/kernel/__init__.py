"""The kernel of merges and compactions: no catalog, HTTP, Spark or threads (docs/kernel.md)."""
