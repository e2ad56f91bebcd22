"""Bodies read piece by piece: a large one takes no more memory than its pieces. All faults are reported at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from app.core.errors import ErrorCode, Invalid, Violation
from app.core.plan.records.bounds import Bounds
from app.core.plan.records.record_decoder import REPORTED_VIOLATIONS, DecodedRecords, Note, invalid_records
from app.storage.staging.spool import Content, read_until

Piece = Callable[[], DecodedRecords]
"""Some records of a body in a row: called, it decodes them. Raises ``Invalid`` with all of their faults."""


# Of a process. A piece may take 30 times its bytes while it is decoded, and what is not pyarrow's own work is done one
# after the other anyway.
DECODED_AT_ONCE: Final = min(4, max(2, os.cpu_count() or 1))
# A body is read no further than to the piece of this fault: only the first hundred are reported.
MOST_COUNTED: Final = 10_000
_turns = threading.BoundedSemaphore(DECODED_AT_ONCE)


@contextmanager
def decoding() -> Iterator[None]:
    """Wait for a turn to decode what a client sent; few have one at a time."""
    with _turns:
        yield


def decoded_pieces(pieces: Iterable[Piece]) -> Iterator[DecodedRecords]:
    """Yield the records of the pieces up to the first fault. Raise ``Invalid`` with the faults of all pieces at the
    end, or of those up to the ten-thousandth fault. Few pieces of a process are decoded at a time.
    """
    faults = _Faults()
    rest = iter(pieces)
    more = True
    while more and faults.total < MOST_COUNTED:
        with decoding():
            records, more = _next(rest, faults)
        if records is not None and not faults.total:
            yield records
    faults.check(more=more)


class Notes:
    """Counts what the records of a request are noted for; those without a sequence are null in all ``ordering``."""

    def __init__(self, ordering: Sequence[str]) -> None:
        self._ordering = ordering
        self.counts: dict[Note, int] = {}

    def __call__(self, pieces: Iterable[DecodedRecords]) -> Iterator[DecodedRecords]:
        """Return the same pieces, counted as they are taken."""
        for piece in pieces:
            for note, count in piece.notes.items():
                self._add(note, count)
            if self._ordering and len(piece):
                nulls = [_nulls(piece.columns[name]) for name in self._ordering]
                self._add(Note.WITHOUT_SEQUENCE, int(np.all(nulls, axis=0).sum()))
            yield piece

    def _add(self, note: Note, count: int) -> None:
        if count:
            self.counts[note] = self.counts.get(note, 0) + count


def _nulls(column: Any) -> np.ndarray[Any, Any]:
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return np.asarray(column.is_null())
    return np.array([value is None for value in column], dtype=bool)


def _next(rest: Iterator[Piece], faults: _Faults) -> tuple[DecodedRecords | None, bool]:
    """Return the records of the next piece, unless they have faults, and whether there was a piece."""
    piece = next(rest, None)
    if piece is None:
        return None, False
    try:
        return piece(), True
    except Invalid as error:
        faults.add(error)
        return None, True


@dataclass
class _Faults:
    """The faults of the pieces so far. Errors themselves are not kept: each holds the piece that it came from."""

    reported: list[Violation] = field(default_factory=list)
    total: int = 0
    first: tuple[str, ErrorCode] | None = None
    pieces: int = 0

    def add(self, error: Invalid) -> None:
        self.first = self.first or (error.message, error.code)
        self.pieces += 1
        self.total += error.total_violations
        self.reported += error.violations[: REPORTED_VIOLATIONS - len(self.reported)]

    def check(self, *, more: bool) -> None:
        if self.first is None:
            return
        if self.pieces > 1 or more:
            raise invalid_records(self.reported, self.total, more=more)
        message, code = self.first
        raise Invalid(message, code=code, violations=self.reported, total_violations=self.total)


def text_pieces(content: Content, bounds: Bounds, end_of: Callable[[bytes], int]) -> Iterator[tuple[int, bytes]]:
    """Yield the body cut where records end, each piece with its place; one at least. ``end_of`` is the place after the
    last record that ends in a part, 0 if none does. Raise ``TooLarge`` for a record that must not be held whole.
    """
    place, size = 0, bounds.piece_bytes
    while place < len(content) or place == 0:
        part = content[place : place + size]
        end = len(part) if place + len(part) == len(content) else end_of(part)
        if end == 0 and part:
            bounds.check_record(len(part) + 1)
            size = min(2 * size, bounds.longest_record)
            continue
        yield place, part if end == len(part) else part[:end]
        if end == 0:
            return
        place, size = place + end, bounds.piece_bytes
        read_until(content, place)
