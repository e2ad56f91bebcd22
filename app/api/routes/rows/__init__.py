"""Routes that answer rows: by key, by scan, one by one."""
