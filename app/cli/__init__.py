"""``keyfold``: a noun is a file, as in every layer. What asks a service over HTTP is in ``client``."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """The console script. A command that asks a service does not load one: that takes longer than most answers."""
    gc.disable()  # all that is loaded stays: to look through it for garbage took a fifth of a start
    from app.cli.client import program as client  # noqa: PLC0415  # see above

    run = client.run
    if not client.knows(sys.argv[1:]):
        from app.cli import program  # noqa: PLC0415  # the same

        run = program.run
    gc.freeze()
    gc.enable()
    run()
