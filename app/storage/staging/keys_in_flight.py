"""Idempotency keys whose request is in flight, in any process of this machine."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import xxhash

_PLACES = 2**62  # offsets that a lock may have


class KeysInFlight:
    """Locks keys by locking single bytes of a file, one for each key. The system releases the locks of a dead process.
    Two keys with the same byte, one pair in 10^18, count as one key.

    ``path`` is the file, created on first use; without it only this process sees the keys.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        # A file lock belongs to the whole process, so this set distinguishes its threads. Closing any descriptor of the
        # file would release all locks, so one descriptor stays open.
        self._taken: set[int] = set()
        self._file: int | None = None

    @contextmanager
    def taking(self, table_id: str, key: str | None) -> Iterator[bool]:
        """Yield whether the key was free; it is taken until the block ends. A request without a key never waits."""
        if key is None:
            yield True
            return
        place = xxhash.xxh3_64_intdigest(f"{table_id}\0{key}".encode("utf-8", "surrogatepass")) % _PLACES
        taken = self._take(place)
        try:
            yield taken
        finally:
            if taken:
                self._give_back(place)

    def _take(self, place: int) -> bool:
        with self._lock:
            if place in self._taken or not self._take_of_all(place):
                return False
            self._taken.add(place)
            return True

    def _take_of_all(self, place: int) -> bool:
        """Lock the byte against other processes; return whether it was free. If the file cannot be locked, every key
        counts as free: the catalog still takes only one of two requests.
        """
        if self._path is None:
            return True
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except OSError as error:
            return error.errno not in (errno.EACCES, errno.EAGAIN)
        return True

    def _give_back(self, place: int) -> None:
        with self._lock:
            self._taken.remove(place)
            if self._file is not None:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, place)
