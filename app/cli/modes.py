"""Permissions: whether other users of this machine may enter a folder of the service."""

from __future__ import annotations

import shlex
import stat
from pathlib import Path

_RIGHTS = ((4, "r"), (2, "w"), (1, "x"))


def how_to_close(folder: Path, umask: int) -> str | None:
    """Return the command that takes the permissions of ``umask`` from ``folder`` and all in it; None if it has none
    of them, or does not exist.

    Only the folder itself is checked: other users cannot reach files inside a closed one.
    """
    try:
        mode = stat.S_IMODE(folder.stat().st_mode)
    except OSError:
        return None
    if not mode & umask:
        return None
    taken = [(who, umask >> shift & 7) for who, shift in (("g", 3), ("o", 0))]
    changes = [f"{who}-{_letters(rights)}" for who, rights in taken if rights]
    return f"chmod -R {','.join(changes)} {shlex.quote(str(folder))}"


def _letters(rights: int) -> str:
    return "".join(letter for bit, letter in _RIGHTS if rights & bit)
