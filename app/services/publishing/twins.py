"""Twins: what Paimon's own clients read of a table with ``twin.publish``, kept at its last full compaction
(docs/decisions/0030).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import KeyfoldError
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.history import Snapshot, SnapshotKind, Table
from app.core.table.schema import TableSchema
from app.files.layout import Warehouse, twin_file
from app.services.rows.scans import Scan, parts
from app.services.rows.views import View, schemas_of
from app.services.shared.executor import MergeSite
from app.storage.paimon.twins import Twin, begun_twins, keep_twins, twin_fields, whole_twins, write_twin

logger = logging.getLogger(__name__)
PUBLISH = "twin.publish"
# A twin from before one of these has rows that the table has no longer; one of their own snapshot has not.
_ENDING = (SnapshotKind.ROLLBACK, SnapshotKind.PARTITION_DROP, SnapshotKind.FORGETTING)


@dataclass(frozen=True)
class Published:
    """The twin that is read now, the snapshot that it shows, the table as it shows it, and the URI of its folder."""

    twin: Twin
    snapshot: Snapshot
    table: Table
    location: str

    @property
    def fields(self) -> list[dict[str, Any]]:
        """The columns as Paimon's JSON."""
        return twin_fields(self.table.schema)


def publish(site: MergeSite, table: Table, snapshot: Snapshot | None) -> None:
    """Write the twin of ``snapshot``, which a full compaction has made, if ``table`` wants one.

    What goes wrong is a warning, and the twin before it stays: nothing else depends on it.
    """
    if snapshot is None or not table.schema.parsed[PUBLISH]:
        return
    twin = Twin(snapshot.id, table.schema_id)
    try:
        if twin not in whole_twins(site.warehouse, table.id):
            _write(site, table, snapshot, twin)
    except (OSError, KeyfoldError):
        logger.warning(
            "the twin of table %s at snapshot %d is not written", table.full_name, snapshot.id, exc_info=True
        )


def _write(site: MergeSite, table: Table, snapshot: Snapshot, twin: Twin) -> None:
    with site.database.reading() as repository:
        schemas = schemas_of(repository, table, snapshot)
    scan = Scan(View(table, compile_plan(table.schema), snapshot, schemas), table.schema.columns)
    batches = (part.batch for _, part in parts(site.warehouse, scan))
    at = int(snapshot.committed_at.timestamp() * 1000)
    write_twin(site.warehouse, table.id, twin, table.schema, batches, at)


def published(repository: Repository, warehouse: Warehouse, table: Table) -> Published | None:
    """Return what Paimon's clients read of ``table`` now; None where it publishes nothing, or nothing that is still
    true: of other columns, or of rows that a rollback or a dropped partition took away.
    """
    if not table.schema.parsed[PUBLISH]:
        return None
    ended = repository.snapshots.last_of(table.id, _ENDING) or 0
    for twin in whole_twins(warehouse, table.id):
        snapshot = repository.snapshots.find(table.id, twin.snapshot_id)
        if twin.snapshot_id >= ended and snapshot is not None:
            schema = repository.tables.schema_at(table.id, twin.schema_id)
            shown = replace(table, schema_id=twin.schema_id, schema=schema)
            location = warehouse.uri(*twin_file(table.id))
            return Published(twin, snapshot, shown, location) if _same_columns(schema, table.schema) else None
    return None


def _same_columns(one: TableSchema, other: TableSchema) -> bool:
    return [(c.id, c.name, c.type) for c in one.columns] == [(c.id, c.name, c.type) for c in other.columns]


def sweep_twins(
    database: CatalogDatabase, warehouse: Warehouse, table: Table, before: datetime
) -> tuple[int | None, int]:
    """Remove the twins of ``table`` that no one is told of any more: those whose snapshot has expired, and those of
    rows that are gone. What is no twin's file, or a client's own, goes if it is older than ``before``.

    Returns the number of the snapshot that must stay for the twin that is read, and how many files were removed.
    """
    begun = begun_twins(warehouse, table.id)
    with database.reading() as repository:
        kept = published(repository, warehouse, table) if begun else None
        ended = repository.snapshots.last_of(table.id, _ENDING) or 0
        known = [one for one in begun if one.snapshot_id >= ended and _is_known(repository, table, one)]
    removed = keep_twins(warehouse, table.id, known, set(begun) - set(known), before)
    return (kept.snapshot.id if kept else None), removed


def _is_known(repository: Repository, table: Table, twin: Twin) -> bool:
    return repository.snapshots.find(table.id, twin.snapshot_id) is not None
