"""A file cut into batches, always at the same places, so that an interrupted load continues where it stopped.

Only the file and the client's bounds decide where the cuts are. If the bounds change, an interrupted load sends the
rest in other batches under other keys, which counts records twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import IO, Final

from app.cli.client.endings import usage
from keyfold_client.pieces import PIECE_BYTES, PIECE_RECORDS

MOST_RECORD_BYTES: Final = 2**28  # memory for one record; the service refuses smaller ones already (docs/sizing.md)
_QUOTED: Final = re.compile(rb'"[^"]*"')
_LONE_CR: Final = re.compile(rb"\r(?!\n)")


@dataclass(frozen=True)
class Piece:
    """One batch: ``before`` records of the file come before its ``records``, ``end`` is its end in the file (in bytes
    for text, in rows for columns), and ``mark`` identifies the piece.

    For text, ``lines`` are the line numbers of its records in the file, and ``header`` bytes come before its records.
    """

    body: bytes
    before: int
    records: int
    end: int
    mark: str
    lines: Sequence[int] = field(default=(), repr=False)
    header: int = 0

    def place(self, row: int) -> str:
        """Return the place in the file of the piece's record ``row`` (from 0): its line, or its number from 1."""
        number = self.before + row + 1
        return f"line {self.lines[row]}" if row < len(self.lines) else f"row {number}"


def text_pieces(file: IO[bytes], salt: str, *, csv: bool) -> Iterator[Piece]:
    """Yield the records of NDJSON, or of CSV, each piece of which has the header line.

    The mark of a piece is a digest of the file up to its end: corrections after it do not change it, and files with
    the same beginning share pieces. Raise ``Failure`` for a record without an end, and for CSV whose lines end with CR.
    """
    digest = blake2b(salt.encode(), digest_size=16)
    header = _record(file, quoted=True) if csv else b""
    if _LONE_CR.search(_QUOTED.sub(b"", header)):
        # The header would hold records, or the whole file, which would pass for one without records.
        raise usage("its lines end with CR alone", "  → end them with LF: tr '\\r' '\\n' < FILE")
    digest.update(header)
    before, end, line = 0, len(header), header.count(b"\n") + 1
    taken: list[bytes] = []
    lines: list[int] = []
    size = 0
    while True:
        record = _record(file, quoted=csv)
        if taken and (not record or size + len(record) > PIECE_BYTES or len(lines) >= PIECE_RECORDS):
            body = b"".join(taken)
            digest.update(body)
            end += len(body)
            if lines:
                yield Piece(header + body, before, len(lines), end, f"{digest.hexdigest()}-{end}", lines, len(header))
            before, taken, lines, size = before + len(lines), [], [], 0
        if not record:
            return
        if record.strip(b"\r\n" if csv else None):  # in CSV, blanks are a record of one field
            lines.append(line)
        line += record.count(b"\n")
        size += len(record)
        taken.append(record)


def _record(file: IO[bytes], *, quoted: bool) -> bytes:
    """Return the bytes of the next record: a line, or several if quoted values contain line breaks."""
    parts: list[bytes] = []
    quotes = size = 0
    while part := file.readline(MOST_RECORD_BYTES + 1 - size):
        parts.append(part)
        size += len(part)
        quotes += part.count(b'"') if quoted else 0
        if size > MOST_RECORD_BYTES:
            why = "; does a quote that opens a field close it?" if quoted else ""
            raise usage(f"a record is larger than {MOST_RECORD_BYTES} bytes{why}")
        if quotes % 2 == 0:
            break
    return b"".join(parts)
