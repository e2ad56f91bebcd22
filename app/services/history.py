"""History: the records of merged batches, kept for a while to explain rows, and the snapshots they are explained from
(docs/decisions/0034).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from app.catalog.repository import Repository
from app.core.table.history import Base, Batch, SnapshotKind, Table
from app.core.table.kept_history import Kept, Retention, kept_next
from app.core.table.keys import Key
from app.core.table.records import Record
from app.core.table.schema import TableSchema
from app.storage.layout import Warehouse
from app.storage.staging import read_key_records


@dataclass(frozen=True)
class KeptRecord:
    """A merged record, its batch, and the schema that it was written under."""

    batch: Batch
    schema: TableSchema
    record: Record


def kept_since(repository: Repository, table: Table) -> int:
    """The number of the snapshot after which every merged record is kept: it is kept, too. 0 where all are kept from
    the table's first batch on.
    """
    if not retention_of(table).window:
        return table.snapshot_id or 0
    return repository.history.of(table.id).since


def kept_records(
    repository: Repository, warehouse: Warehouse, table: Table, key: Key, after_snapshot: int | None = None
) -> list[KeptRecord]:
    """The records of ``key`` that merges brought into snapshots after ``after_snapshot``, as far as they are kept, in
    merge order: by snapshot, batch number, position.

    Raises ``DamagedFile``; ``missing`` also where a sweep has moved records to another file since the transaction
    began: to be read again (``app.services.damage.read_again``) in a new one.
    """
    after = max(kept_since(repository, table), after_snapshot or 0)
    return list(_staged_records(repository, warehouse, table, key, after))


def _staged_records(
    repository: Repository, warehouse: Warehouse, table: Table, key: Key, after: int
) -> Iterator[KeptRecord]:
    for batch in repository.history.unfiled(table.id, after):
        schema = repository.tables.schema_at(table.id, batch.schema_id)
        for record in read_key_records(warehouse, batch, schema, key):
            yield KeptRecord(batch, schema, record)


def retention_of(table: Table) -> Retention:
    """What the table's options ask for."""
    options = table.schema.parsed
    return Retention(options["history.time-retained"], options["history.max-size"])


def move_history(repository: Repository, table: Table, now: datetime) -> None:
    """Let history begin where the table's options say by ``now``, at a snapshot that is kept for it.

    Raises ``NotFound`` when the table is gone.
    """
    repository.tables.lock(table.id)
    current = repository.commits.find(table.id, repository.commits.heads([table.id]).get(table.id, 0))
    if current is None:
        return
    before = Kept(repository.history.of(table.id).since, tuple(repository.history.bases(table.id)))
    after = kept_next(
        before,
        Base(current.snapshot_id, current.committed_at),
        table.created_at,
        now,
        retention_of(table),
        lambda snapshot: repository.history.size_after(table.id, snapshot),
        _restored(repository, table.id, before.since),
    )
    if after != before:
        repository.history.begin_after(table.id, after.since, [base.snapshot_id for base in after.bases])
        repository.rewrites.forget(table.id, after.since)


def _restored(repository: Repository, table_id: str, since: int) -> list[Base]:
    """The snapshots of rollbacks to what was before all that is kept: it cannot be explained from any other."""
    rewrites = repository.rewrites.after(table_id, since)
    back = [one for one in rewrites if one.kind is SnapshotKind.ROLLBACK and (one.restored_from or 0) < since]
    commits = (repository.commits.find(table_id, one.snapshot_id) for one in back)
    return [Base(commit.snapshot_id, commit.committed_at) for commit in commits if commit is not None]
