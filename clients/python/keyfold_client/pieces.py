"""Records cut into batches that the service takes; a retry cuts at the same places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from keyfold_client.errors import Misuse
from keyfold_client.values import to_json

# ``keyfold load`` cuts by them, too: a change doubles the rest of a load that broke before it.
PIECE_BYTES: Final = 4 * 2**20
PIECE_RECORDS: Final = 25_000
NDJSON: Final = "application/x-ndjson"


@dataclass(frozen=True)
class Piece:
    """The body of one batch."""

    body: bytes
    records: int
    media_type: str


def pieces_of(rows: Any) -> Iterator[Piece]:
    """Yield the records of ``rows``: mappings by column, or anything that shows itself as Arrow (PyArrow, pandas,
    polars, DuckDB). Raise ``Misuse``.
    """
    if hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
        from keyfold_client.arrow import streams  # noqa: PLC0415  # PyArrow is an extra

        yield from streams(rows)
    elif isinstance(rows, (Mapping, str, bytes)) or not isinstance(rows, Iterable):
        kind = type(rows).__name__
        raise Misuse(f"rows are mappings by column, or a table of Arrow, pandas or polars; this is a {kind}")
    else:
        yield from _texts(rows)


def _texts(rows: Iterable[Any]) -> Iterator[Piece]:
    """Yield records as lines of JSON; row kinds stand in ``_kind``."""
    lines: list[bytes] = []
    size = 0
    for row in rows:
        if not isinstance(row, Mapping):
            raise Misuse(f"a record is a mapping by column; this is a {type(row).__name__}")
        line = to_json(dict(row)).encode()
        if lines and (size + len(line) > PIECE_BYTES or len(lines) >= PIECE_RECORDS):
            yield Piece(b"\n".join(lines), len(lines), NDJSON)
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
    if lines:
        yield Piece(b"\n".join(lines), len(lines), NDJSON)
