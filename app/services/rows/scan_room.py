"""What all scans of a process take together: how many there are at a time, and the memory of the staged rows that they
fold on top (docs/operations.md, Bounds).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from app.core.errors import FaultCode, StagingFull, Unavailable, Violation

MOST_SCANS: Final = 16
MOST_STAGED_BYTES: Final = 2**30
MOST_COLUMNS: Final = 16_000  # of files that are read at a time; each has a reader of about 64 KiB


class ScanRoom:
    """Places for scans. Safe to share between threads."""

    def __init__(
        self, most_scans: int = MOST_SCANS, most_staged_bytes: int = MOST_STAGED_BYTES, most_columns: int = MOST_COLUMNS
    ) -> None:
        self._most_scans, self._most_staged_bytes, self._most_columns = most_scans, most_staged_bytes, most_columns
        self._scans = self._staged_bytes = self._columns = 0
        self._lock = threading.Lock()

    @contextmanager
    def place(self) -> Iterator[ScanPlace]:
        """A place for one scan, until its answer has gone out. Raises ``Unavailable`` where there is none."""
        with self._lock:
            if self._scans >= self._most_scans:
                raise _no_place(self._scans)
            self._scans += 1
        place = ScanPlace(self)
        try:
            yield place
        finally:
            with self._lock:
                self._scans -= 1
                self._staged_bytes -= place.staged_bytes
                self._columns -= place.columns

    def take_staged(self, size: int) -> None:
        """Note that ``size`` more bytes of staged rows are in memory. Raises ``StagingFull`` where there is no room."""
        with self._lock:
            if self._staged_bytes + size > self._most_staged_bytes:
                raise _too_much_staged(self._most_staged_bytes)
            self._staged_bytes += size

    def take_columns(self, count: int) -> None:
        """Note that ``count`` more columns of files are read. Raises ``Unavailable`` where others read too many;
        who is alone may read any number.
        """
        with self._lock:
            if self._columns and self._columns + count > self._most_columns:
                raise _no_place(self._scans)
            self._columns += count


class ScanPlace:
    """One scan's place, and what it takes of the room."""

    def __init__(self, room: ScanRoom) -> None:
        self._room = room
        self.staged_bytes = self.columns = 0

    def take_staged(self, size: int) -> None:
        """As ``ScanRoom.take_staged``; given back with the place."""
        self._room.take_staged(size)
        self.staged_bytes += size

    def take_columns(self, count: int) -> None:
        """As ``ScanRoom.take_columns``; given back with the place."""
        self._room.take_columns(count)
        self.columns += count


def _no_place(scans: int) -> Unavailable:
    message = f"the process answers {scans} scans, and has no room for more at a time; ask again in a moment"
    fix = "scan fewer tables at a time, read answers as fast as they come, or run more processes (KEYFOLD_PROCESSES)"
    return Unavailable(message, violations=[Violation("", FaultCode.TOO_MANY, message, fix)])


def _too_much_staged(most: int) -> StagingFull:
    message = f"what is staged takes more than the {most} bytes of memory that all scans have for it together"
    fix = "wait until the table is merged (POST …/merges), or scan with consistency=merged"
    return StagingFull(f"{message}; {fix}", violations=[Violation("", FaultCode.STAGED_BYTES, message, fix)])
