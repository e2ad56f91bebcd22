"""Ingest over real sockets: bodies of every format, beside services that keep the same rows elsewhere."""
