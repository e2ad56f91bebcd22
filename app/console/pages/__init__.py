"""Pages about the service: its first page, examples, operations, tokens, new tables."""
