"""``keyfold``: each noun is a file, as in every layer. Commands that call a service over HTTP are in ``client``."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence


def main() -> None:
    """Run the console script. Only the modules that a command needs are loaded: loading takes longer than most
    answers.
    """
    gc.disable()  # loaded modules stay: collecting garbage among them took a fifth of the start
    run = _of(_words())
    gc.freeze()
    gc.enable()
    run()


def _words() -> Sequence[str]:
    """Return the words of the command line; during completion they come from the shell."""
    if "_KEYFOLD_COMPLETE" not in os.environ:
        return sys.argv[1:]
    return (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()[1:]


def _of(words: Sequence[str]) -> Callable[[], None]:
    from app.cli import overview  # noqa: PLC0415  # see above

    if not words or words[0] not in overview.COMMANDS:
        return overview.run
    from app.cli import program  # noqa: PLC0415  # the same

    return program.command_of(words)
