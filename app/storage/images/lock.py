"""File lock: only one process builds images in a folder."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOCK = "builder.lock"


@contextmanager
def builders_lock(folder: Path) -> Iterator[bool]:
    """Yield whether this process has the lock; it is released with the block, or when the process dies."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / _LOCK, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
