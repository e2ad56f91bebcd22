"""The versions of a table's Delta log, as the catalog decides them (docs/decisions/0031)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.core.table.history import Run
from app.core.table.schema import TableSchema


@dataclass(frozen=True)
class DeltaVersion:
    """One version: the rows of snapshot ``as_of`` under the columns of ``schema_id``.

    ``snapshot_id`` is the snapshot that keeps its files: ``as_of`` itself where that has one run of each partition,
    else one that holds what a full compaction of ``as_of`` left, below newer runs. ``written_at`` is when the log had
    it, None while it has not.
    """

    table_id: str
    version: int
    snapshot_id: int
    as_of: int
    schema_id: int
    committed_at: datetime
    written_at: datetime | None = None


@dataclass(frozen=True)
class Published:
    """What a version shows: its runs, the table's schema then, and by id the schemas that runs were written under."""

    version: DeltaVersion
    schema: TableSchema
    runs: Sequence[Run]
    written: Mapping[int, TableSchema]
