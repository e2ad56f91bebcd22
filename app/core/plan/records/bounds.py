"""How much one request may hold (docs/sizing.md, Bounds)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from app.core.errors import FaultCode, TooLarge, Violation

MOST_WHOLE_BYTES: Final = 2**28
PIECE_BYTES: Final = 2**22
PIECE_VALUES: Final = 2**24  # 128 MiB, if a default fills each of them
# What a coding unfolds to may be this large what was sent: a small body of zeros harms no one.
FREE_BYTES: Final = 2**24


@dataclass(frozen=True)
class Bounds:
    """The most that one request may hold: records, bytes once nothing of it is compressed, values (a record has one for
    each of the table's ``columns`` and the fields inside them, sent or not), bytes of a record, and how many times
    larger it may become by being decompressed.

    ``piece_bytes`` and ``piece_values`` are about how much of it is decoded at a time; a page of Parquet, which has
    ``page_bytes`` at most, is decompressed as a whole.
    """

    records: int
    bytes: int = MOST_WHOLE_BYTES
    piece_bytes: int = PIECE_BYTES
    values: int = 2**28
    record_bytes: int = 2**23
    ratio: int = 250
    columns: int = 1
    piece_values: int = PIECE_VALUES
    page_bytes: int = 2**27  # writers make pages of 1 MiB, few of up to 100 MB

    def of_table(self, columns: int) -> Bounds:
        """Return the bounds of a batch for a table of so many columns and fields inside them."""
        return replace(self, columns=max(1, columns))

    @property
    def whole_bytes(self) -> int:
        """The most bytes of a body that is not read in pieces."""
        return min(self.bytes, MOST_WHOLE_BYTES)

    @property
    def piece_records(self) -> int:
        """The most records to decode at a time."""
        return max(1, self.piece_values // self.columns)

    def check_records(self, records: int) -> None:
        """Raise ``TooLarge`` if there are too many, or too many for a table of so many columns."""
        if records > self.records:
            raise _too_large(f"a batch holds at most {self.records} records, this one has {records} or more")
        most = self.values // self.columns
        if records > most:
            message = (
                f"a batch holds at most {self.values} values, so of a table of {self.columns} columns {most} records;"
                f" this one has {records} or more"
            )
            raise _too_large(message)

    def check_bytes(self, size: int) -> None:
        """Raise ``TooLarge`` if ``size``, that of the body when it is decoded, is over the bound."""
        if size > self.bytes:
            raise _too_large(f"the body is larger than {self.bytes} bytes once it is decompressed")

    def check_unfolded(self, size: int, sent: int) -> None:
        """Raise ``TooLarge`` if ``sent`` bytes were decompressed to ``size``, and that or the ratio is too large."""
        self.check_bytes(size)
        if size > max(FREE_BYTES, self.ratio * sent):
            message = (
                f"{sent} bytes become {size} or more when they are decompressed, more than {self.ratio} times as many"
            )
            raise _too_large(message, "compress it less, or send it as it is")

    def check_whole(self, size: int) -> None:
        """Raise ``TooLarge`` if ``size``, that of a body that is not read in pieces, is over the bound."""
        if size > self.whole_bytes:
            message = f"a body of this media type is at most {self.whole_bytes} bytes"
            raise _too_large(message, "split the request, or send NDJSON")

    @property
    def longest_record(self) -> int:
        """The most bytes of one record."""
        return min(self.record_bytes, self.whole_bytes)

    def check_record(self, size: int) -> None:
        """Raise ``TooLarge`` if ``size``, that of one record in bytes, is over the bound."""
        if size > self.longest_record:
            message = f"the body has a record of {size} bytes or more, at most {self.longest_record} are allowed"
            raise _too_large(message, "store large values elsewhere, and their addresses here")

    def check_decoded(self, what: str, size: int, most: int) -> None:
        """Raise ``TooLarge`` if a part of a file that is decoded as a whole has more than ``most`` bytes."""
        if size > most:
            message = f"the body has a {what} of {size} bytes once it is decoded, at most {most} are allowed"
            raise _too_large(message, "write smaller pages and row groups")

    def check_values(self, values: int) -> None:
        """Raise ``TooLarge`` if all columns together have more values than the largest body has bits.

        The size in bytes is no bound: some values take no bytes.
        """
        if values > 8 * self.whole_bytes:
            raise _too_large("the body has too many values")


def _too_large(message: str, fix: str = "split the request") -> TooLarge:
    return TooLarge(f"{message}; {fix}", violations=[Violation("", FaultCode.TOO_LARGE, message, fix)])
