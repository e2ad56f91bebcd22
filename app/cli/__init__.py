"""``keyfold``: a noun is a file, as in every layer."""

from app.cli.program import main

__all__ = ["main"]
