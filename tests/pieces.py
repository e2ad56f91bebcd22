"""What reads a body in pieces, read as one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from app.core.plan.records.record_decoder import DecodedRecords
from app.storage.ingest.pieces import Piece, decoded_pieces


def joined(pieces: Iterable[Piece]) -> DecodedRecords:
    """The records of all pieces."""
    found = list(decoded_pieces(pieces))
    if len(found) == 1:
        return found[0]
    columns = {name: _concatenated([one.columns[name] for one in found]) for name in found[0].columns}
    kinds = _concatenated([one.kinds for one in found])
    positions = _concatenated([one.positions for one in found])
    return DecodedRecords(columns, kinds, positions, sum(one.ignored for one in found))


def _concatenated(parts: list[Any]) -> list[Any]:
    return [value for part in parts for value in listed(part)]


def listed(column: Any) -> list[Any]:
    """What a column holds: few records are in lists, many in arrays."""
    return column if isinstance(column, list) else list(column.to_pylist())
