"""How many rows a scan has: exactly, or estimated from a share of the tokens."""

from __future__ import annotations

from dataclasses import dataclass

from app.files.layout import Warehouse
from app.services.rows.scans import BEGINNING, LEAST_TOKEN, Scan, parts

SAMPLE_ROWS = 50_000  # state rows that an estimate reads
_TOKENS = 2**64


@dataclass(frozen=True)
class RowCount:
    """The number of rows; ``exact`` says whether it was counted."""

    rows: int
    exact: bool
    snapshot_id: int | None


def count_rows(warehouse: Warehouse, scan: Scan, *, exact: bool, sample_rows: int = SAMPLE_ROWS) -> RowCount:
    """The number of rows of a scan. Unless it must be ``exact``, only so many tokens are read as ``sample_rows`` state
    rows have, from the least on: tokens are hashes, so the others have as many rows each.

    Raises ``DamagedFile``.
    """
    view = scan.view
    stored = view.snapshot.stored_rows if view.snapshot else 0
    known = view.snapshot.rows if view.snapshot else 0
    readable = all(schema is not None for schema in view.readable.values())
    if not scan.conditions and not scan.staged and known is not None and readable:
        return RowCount(known, True, view.snapshot_id)
    stored += sum(len(keys.tokens) for keys in scan.staged.values())
    if exact or stored <= sample_rows:
        return RowCount(sum(len(part) for _, part in parts(warehouse, scan)), True, view.snapshot_id)
    share = _TOKENS * sample_rows // stored
    found = sum(len(part) for _, part in parts(warehouse, scan, BEGINNING, LEAST_TOKEN + share - 1))
    return RowCount(found * _TOKENS // share, False, view.snapshot_id)
