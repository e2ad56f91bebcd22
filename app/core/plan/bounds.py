"""How much one request may hold."""

from __future__ import annotations

from dataclasses import dataclass

from app.core.errors import FaultCode, TooLarge, Violation


@dataclass(frozen=True)
class Bounds:
    """The most that one request may hold: bytes once nothing of it is compressed, and records."""

    records: int
    bytes: int = 2**28

    def check_records(self, records: int) -> None:
        """Raises ``TooLarge`` where there are too many."""
        if records > self.records:
            raise TooLarge(f"a batch holds at most {self.records} records; split the request")

    def check_bytes(self, size: int) -> None:
        """Raises ``TooLarge`` where ``size``, that of the body when it is decoded, is over the bound."""
        if size > self.bytes:
            message = f"the body is larger than {self.bytes} bytes once it is decompressed; split the request"
            raise TooLarge(message, violations=[Violation("", FaultCode.TOO_LARGE, message, "split the request")])
