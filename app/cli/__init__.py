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
    try:
        try:
            run()
        finally:
            print(end="", flush=True)  # noqa: T201  # standard output may be closed, which this allows
    except OSError as error:  # a full disk, usually; commands report the files that they open themselves
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes it once more at its end
        sys.exit(f"keyfold: {error}")


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
