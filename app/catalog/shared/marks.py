"""Marks: the processes of a machine see each other's commits without a query (docs/decisions/0018)."""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import time
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SLOTS = 4096
TOKENS = "tokens"  # instead of a table's id: the API tokens
_ANY, _IDENTITY, _TOKENS, _FIRST = 0, 1, 2, 3  # slots that belong to no table, and the first that does
_SLOT_BYTES = 8
_FILE_BYTES = SLOTS * _SLOT_BYTES
_LOOK_SECONDS: Final = 1.0  # between two checks that the mapped file was not replaced


@dataclass
class _Mapped:
    """The mapped file: its inode, and when to check next whether it was replaced (monotonic seconds)."""

    memory: mmap.mmap
    inode: int
    look_at: float

    def __post_init__(self) -> None:
        self.slots: memoryview[int] = memoryview(self.memory).cast("Q")

    def is_current(self, path: Path) -> bool:
        """Return whether ``path`` is still this file, and complete. Access to a page after its end would kill the
        process, so the size is checked each time.
        """
        if self.memory.size() != _FILE_BYTES:
            return False
        now = time.monotonic()
        if now < self.look_at:
            return True
        self.look_at = now + _LOOK_SECONDS
        try:
            return path.stat().st_ino == self.inode
        except FileNotFoundError:
            return False


class Marks:
    """One number per slot of a file that all processes map; the tables share the slots.

    A process that has committed a change of a table sets a new random number before it reports the commit. Values that
    were read from the catalog after the mark are current as long as the mark is the same. A number never repeats, so
    writers need no lock.

    ``path`` is the file, created on first use and whenever it is incomplete. A replaced file is noticed within a
    second. Without a path the marks are shared only with forks of this process.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._mapped: _Mapped | None = None

    def mark(self, table_id: str) -> int:
        """Return the mark of the table, or of the ``TOKENS``."""
        return self._slots[_slot(table_id)]

    @property
    def last(self) -> int:
        """A number that changes with every mark."""
        return self._slots[_ANY]

    @property
    def identity(self) -> int:
        """The number by which this file differs from those of other machines."""
        return self._slots[_IDENTITY]

    def change(self, table_ids: Collection[str]) -> None:
        """Set new marks for the tables, or for the ``TOKENS``."""
        for table_id in table_ids:
            self._slots[_slot(table_id)] = _fresh()
        self._slots[_ANY] = _fresh()

    def change_all(self) -> None:
        """Set new marks for every table and the tokens."""
        for slot in range(_TOKENS, SLOTS):
            self._slots[slot] = _fresh()
        self._slots[_ANY] = _fresh()

    @property
    def _slots(self) -> memoryview[int]:
        mapped = self._mapped
        if mapped is None or not (self._path is None or mapped.is_current(self._path)):
            mapped = self._mapped = _own() if self._path is None else _mapped(self._path)
        return mapped.slots


def _slot(table_id: str) -> int:
    if table_id == TOKENS:
        return _TOKENS
    return _FIRST + zlib.crc32(table_id.encode()) % (SLOTS - _FIRST)


def _fresh() -> int:
    return secrets.randbits(8 * _SLOT_BYTES)


def _own() -> _Mapped:
    mapped = _Mapped(mmap.mmap(-1, _FILE_BYTES), 0, 0.0)
    mapped.slots[_IDENTITY] = _fresh()
    return mapped


def _mapped(path: Path) -> _Mapped:
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # two processes that make the file must not map two files
        if not path.exists() or path.stat().st_size != _FILE_BYTES:
            _make(path)
            os.fsync(folder)
        with open(path, "r+b") as file:
            look_at = time.monotonic() + _LOOK_SECONDS
            return _Mapped(mmap.mmap(file.fileno(), _FILE_BYTES), os.fstat(file.fileno()).st_ino, look_at)
    finally:
        os.close(folder)


def _make(path: Path) -> None:
    """Write the file with a new identity; processes that have the old one mapped notice."""
    aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.writing")
    with open(aside, "wb") as file:
        file.write(secrets.token_bytes(_FILE_BYTES))
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
