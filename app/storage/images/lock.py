"""Who builds the images of a folder: one process at a time, regardless of what becomes of it."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOCK = "builder.lock"


@contextmanager
def builders_lock(folder: Path) -> Iterator[bool]:
    """Whether this process alone may build now; the lock ends with the block, or with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / _LOCK, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
