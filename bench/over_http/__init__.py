"""Lookups over real sockets: a real ``keyfold serve``, constant routes, and rows in Redis and PostgreSQL."""
