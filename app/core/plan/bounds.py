"""How much one request may hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.core.errors import FaultCode, TooLarge, Violation

MOST_WHOLE_BYTES: Final = 2**28
PIECE_BYTES: Final = 2**22


@dataclass(frozen=True)
class Bounds:
    """The most that one request may hold: bytes once nothing of it is compressed, and records. ``piece_bytes`` is about
    how much of it is decoded at a time.
    """

    records: int
    bytes: int = MOST_WHOLE_BYTES
    piece_bytes: int = PIECE_BYTES

    @property
    def whole_bytes(self) -> int:
        """The most bytes that are held in memory together: of a body that is not read in pieces, or of a record."""
        return min(self.bytes, MOST_WHOLE_BYTES)

    def check_records(self, records: int) -> None:
        """Raises ``TooLarge`` where there are too many."""
        if records > self.records:
            raise TooLarge(f"a batch holds at most {self.records} records; split the request")

    def check_bytes(self, size: int) -> None:
        """Raises ``TooLarge`` where ``size``, that of the body when it is decoded, is over the bound."""
        if size > self.bytes:
            raise _too_large(f"the body is larger than {self.bytes} bytes once it is decompressed; split the request")

    def check_whole(self, size: int) -> None:
        """Raises ``TooLarge`` where ``size``, that of a body that is not read in pieces, is over the bound."""
        if size > self.whole_bytes:
            message = (
                f"a body of this media type is at most {self.whole_bytes} bytes; split the request, or send NDJSON"
            )
            raise _too_large(message)

    def check_values(self, values: int) -> None:
        """Raises ``TooLarge`` where there are more values, of all columns, than a body has bits: some take no bytes."""
        if values > 8 * self.whole_bytes:
            raise _too_large("the body has too many values; split the request")


def _too_large(message: str) -> TooLarge:
    return TooLarge(message, violations=[Violation("", FaultCode.TOO_LARGE, message, "split the request")])
