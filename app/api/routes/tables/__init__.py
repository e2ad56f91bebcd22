"""Routes of databases and tables: made, altered, dropped, described."""
