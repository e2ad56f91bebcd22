"""``keyfold``: a noun is a file, as in every layer. What asks a service over HTTP is in ``client``."""

from __future__ import annotations

import sys


def main() -> None:
    """The console script. A command that asks a service does not load one: that takes longer than most answers."""
    from app.cli.client import program as client  # noqa: PLC0415  # see above

    if client.knows(sys.argv[1:]):
        client.run()
    else:
        from app.cli import program  # noqa: PLC0415  # the same

        program.run()
