"""``keyfold``: a noun is a file, as in every layer. What asks a service over HTTP is in ``client``."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from functools import partial


def main() -> None:
    """The console script. What a command does not need is not loaded: that takes longer than most answers."""
    words = sys.argv[1:]
    gc.disable()  # all that is loaded stays: to look through it for garbage took a fifth of a start
    run = _of(words)
    gc.freeze()
    gc.enable()
    run()


def _of(words: Sequence[str]) -> Callable[[], None]:
    from app.cli import overview  # noqa: PLC0415  # see above

    if overview.suffices(words):
        return overview.run
    from app.cli.client import program as client  # noqa: PLC0415  # the same

    if client.knows(words):
        return client.run
    from app.cli.memory import keep_memory_flat  # noqa: PLC0415  # the same

    keep_memory_flat()
    from app.cli import program  # noqa: PLC0415  # the same

    return partial(program.run, program.program_for(words))
