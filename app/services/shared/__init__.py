"""What use cases of every noun need: pages, retries, commits, the executor of merges."""
