"""Bodies read piece by piece, so that a large one takes no more memory than its pieces; all of its faults are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from app.core.errors import ErrorCode, Invalid, TooLarge, Violation
from app.core.plan.bounds import Bounds
from app.core.plan.record_decoder import REPORTED_VIOLATIONS, DecodedRecords
from app.storage.spool import Content, read_until

Piece = Callable[[], DecodedRecords]
"""Some records of a body in a row: called, it decodes them. Raises ``Invalid`` with all of their faults."""


def decoded_pieces(pieces: Iterable[Piece]) -> Iterator[DecodedRecords]:
    """The records of the pieces up to the first fault. Raises ``Invalid`` with the faults of all pieces at the end."""
    faults = _Faults()
    for piece in pieces:
        try:
            records = piece()
        except Invalid as error:
            faults.add(error)
            continue
        if not faults.total:
            yield records
    faults.check()


@dataclass
class _Faults:
    """The faults of the pieces so far. Errors themselves are not kept: each holds the piece that it came from."""

    told: list[Violation] = field(default_factory=list)
    total: int = 0
    first: tuple[str, ErrorCode] | None = None
    pieces: int = 0

    def add(self, error: Invalid) -> None:
        self.first = self.first or (error.message, error.code)
        self.pieces += 1
        self.total += error.total_violations
        self.told += error.violations[: REPORTED_VIOLATIONS - len(self.told)]

    def check(self) -> None:
        if self.first is None:
            return
        message, code = self.first
        if self.pieces > 1:
            message = f"{self.total} fault(s) in the records; nothing was stored"
        raise Invalid(message, code=code, violations=self.told, total_violations=self.total)


def text_pieces(content: Content, bounds: Bounds, end_of: Callable[[bytes], int]) -> Iterator[tuple[int, bytes]]:
    """The body cut where records end, each piece with its place; one at least. ``end_of`` is the place after the last
    record that ends in a part, 0 if none does. Raises ``TooLarge`` for a record that must not be held whole.
    """
    place, size = 0, bounds.piece_bytes
    while place < len(content) or place == 0:
        part = content[place : place + size]
        end = len(part) if place + len(part) == len(content) else end_of(part)
        if end == 0 and part:
            if size >= bounds.whole_bytes:
                raise TooLarge(f"the body has a record of more than {bounds.whole_bytes} bytes")
            size = min(2 * size, bounds.whole_bytes)
            continue
        yield place, part if end == len(part) else part[:end]
        if end == 0:
            return
        place, size = place + end, bounds.piece_bytes
        read_until(content, place)
