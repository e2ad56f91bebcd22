"""Connections to the database: SQLite's file, PostgreSQL's notifications, queued writers."""
