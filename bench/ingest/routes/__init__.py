"""What ingest is compared with, each a program: ``python -m bench.ingest.routes.<name> <folder or address>``.

Each takes bodies at its routes and answers when their rows are written; ``GET /count`` says how many rows there are.
All but that of SQLite run with the interpreter of ``requirements-peers.txt``, which has no Keyfold.
"""
