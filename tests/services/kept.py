"""What is kept of a key, as explanations read it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from app.catalog.database import CatalogDatabase
from app.core.table.history import Batch, Table
from app.files.layout import Warehouse
from app.services.explaining.history import KEY_ROOM, KeptRecords, kept_files, kept_records, kept_since
from app.storage.history.history import Room


def kept_of(
    database: CatalogDatabase,
    warehouse: Warehouse,
    table: Table,
    key: Any,
    after: int = 0,
    room: Room = KEY_ROOM,
    until: int | None = None,
) -> KeptRecords:
    """The kept records of the key of one column, of snapshots after number ``after`` up to ``until``."""
    with database.reading() as repository:
        now = repository.tables.find(table.id) or table
        since = max(kept_since(repository, now), after)
        files = kept_files(repository, now, since, now.snapshot_id or 0 if until is None else until)

    def batches_of(numbers: Collection[int]) -> Mapping[int, Batch]:
        with database.reading() as repository:
            return repository.history.batches(table.id, numbers)

    return kept_records(warehouse, files, (key,), batches_of, room)
