"""What reads a body in pieces, read as one."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from app.core.plan.records.record_decoder import DecodedRecords
from app.storage.ingest.pieces import Piece, decoded_pieces


def joined(pieces: Iterable[Piece]) -> DecodedRecords:
    """The records of all pieces."""
    found = list(decoded_pieces(pieces))
    if len(found) == 1:
        return found[0]
    columns = {name: pa.concat_arrays([one.columns[name] for one in found]) for name in found[0].columns}
    kinds = pa.concat_arrays([one.kinds for one in found])
    positions = pa.concat_arrays([one.positions for one in found])
    return DecodedRecords(columns, kinds, positions, sum(one.ignored for one in found))
