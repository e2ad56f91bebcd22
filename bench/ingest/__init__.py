"""Ingest over real sockets: bodies of every format, compared with services that keep the same rows elsewhere."""
