"""Records as posted, rows as answered, filters of scans."""
