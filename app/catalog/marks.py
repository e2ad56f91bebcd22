"""Marks: how the processes of a machine hear of each other's commits without a query (docs/decisions/0018)."""

from __future__ import annotations

import mmap
import os
import secrets
import zlib
from collections.abc import Collection
from functools import cached_property
from pathlib import Path

SLOTS = 4096
TOKENS = "tokens"  # instead of a table's id: the API tokens
_ANY, _IDENTITY, _TOKENS, _FIRST = 0, 1, 2, 3  # slots that belong to no table, and the first that does
_SLOT_BYTES = 8


class Marks:
    """One number per slot of a file that all processes map; the tables share the slots. Whoever has committed a change
    of a table sets a new random number before anybody is told of the commit: what was read from the catalog after its
    mark is current as long as the mark is the same. A number never comes again, so writers need no lock.

    ``path`` is the file, made on first use; without one the marks are this process's own and those of its forks.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    def of(self, table_id: str) -> int:
        """The mark of the table, or of the ``TOKENS``."""
        return self._slots[_slot(table_id)]

    @property
    def last(self) -> int:
        """What changes with every mark that anybody sets."""
        return self._slots[_ANY]

    @property
    def identity(self) -> int:
        """What tells this file from those of other machines."""
        return self._slots[_IDENTITY]

    def change(self, table_ids: Collection[str]) -> None:
        """New marks for the tables, or for the ``TOKENS``."""
        for table_id in table_ids:
            self._slots[_slot(table_id)] = _fresh()
        self._slots[_ANY] = _fresh()

    def change_all(self) -> None:
        """New marks for every table and the tokens."""
        for slot in range(_TOKENS, SLOTS):
            self._slots[slot] = _fresh()
        self._slots[_ANY] = _fresh()

    @cached_property
    def _slots(self) -> memoryview[int]:
        if self._path is None:
            slots = memoryview(mmap.mmap(-1, SLOTS * _SLOT_BYTES)).cast("Q")
            slots[_IDENTITY] = _fresh()
            return slots
        _make(self._path)
        with open(self._path, "r+b") as file:
            return memoryview(mmap.mmap(file.fileno(), SLOTS * _SLOT_BYTES)).cast("Q")


def _slot(table_id: str) -> int:
    if table_id == TOKENS:
        return _TOKENS
    return _FIRST + zlib.crc32(table_id.encode()) % (SLOTS - _FIRST)


def _fresh() -> int:
    return secrets.randbits(8 * _SLOT_BYTES)


def _make(path: Path) -> None:
    """The file with its identity, unless it is there; whoever comes at the same time finds it whole."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.writing")
    aside.write_bytes(secrets.token_bytes(_SLOT_BYTES * SLOTS))
    try:
        os.link(aside, path)
    except FileExistsError:
        pass
    finally:
        aside.unlink()
