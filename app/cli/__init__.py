"""``keyfold``: a noun is a file, as in every layer. What asks a service over HTTP is in ``client``."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence


def main() -> None:
    """Run the console script. What a command does not need is not loaded: that takes longer than most answers."""
    gc.disable()  # all that is loaded stays: to look through it for garbage took a fifth of a start
    run = _of(_words())
    gc.freeze()
    gc.enable()
    run()


def _words() -> Sequence[str]:
    """Return the command line, of which a shell may ask how it goes on."""
    if "_KEYFOLD_COMPLETE" not in os.environ:
        return sys.argv[1:]
    return (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()[1:]


def _of(words: Sequence[str]) -> Callable[[], None]:
    from app.cli import overview  # noqa: PLC0415  # see above

    if not words or words[0] not in overview.COMMANDS:
        return overview.run
    from app.cli import program  # noqa: PLC0415  # the same

    return program.command_of(words)
