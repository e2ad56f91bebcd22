"""The routes that lookups are compared with, each a program: ``python -m bench.over_http.routes.<name> [<address>]``.

Those of Redis and PostgreSQL run with the interpreter of ``requirements-peers.txt``, which has no Keyfold.
"""
