"""Routes of databases and tables: created, altered, dropped, described."""
