"""History: the records of batches that are merged, as long as their files are kept."""

from __future__ import annotations

from dataclasses import dataclass

from app.catalog.repository import Repository
from app.core.table.history import Batch, Table
from app.core.table.keys import Key
from app.core.table.records import Record
from app.core.table.schema import TableSchema
from app.storage.layout import Warehouse
from app.storage.staging import read_key_records, staged_files


@dataclass(frozen=True)
class KeptRecord:
    """A record of a merged batch; ``schema`` is the one that it was accepted under."""

    batch: Batch
    schema: TableSchema
    record: Record


def kept_since(repository: Repository, warehouse: Warehouse, table: Table) -> int:
    """The number of the snapshot after which the records of all merged batches are kept; 0 if they are from the first
    batch on.
    """
    merged = repository.batches.merged(table.id)
    forgotten = repository.batches.last_forgotten(table.id)
    # Whatever is not listed came with the first batch that is listed and has a higher number, or before it.
    later = [batch.snapshot_id or 0 for batch in merged if batch.number > forgotten]
    since = (min(later, default=table.snapshot_id or 0)) if forgotten else 0
    filled = [batch for batch in merged if batch.records]
    there = staged_files(warehouse, table.id, [batch.file for batch in filled])
    return max([since, *(batch.snapshot_id or 0 for batch in filled if batch.file not in there)])


def kept_records(
    repository: Repository, warehouse: Warehouse, table: Table, key: Key, after_snapshot: int | None = None
) -> list[KeptRecord]:
    """The records of a key that snapshots after the number ``after_snapshot`` have brought (None: all), in merge order:
    by snapshot, batch and position. Raises ``DamagedFile``.
    """
    schemas: dict[int, TableSchema] = {table.schema_id: table.schema}
    found: list[KeptRecord] = []
    for batch in repository.batches.merged(table.id, after_snapshot or 0):
        if not batch.records:
            continue
        schema = schemas.get(batch.schema_id)
        if schema is None:
            schema = schemas[batch.schema_id] = repository.tables.schema_at(table.id, batch.schema_id)
        found += [KeptRecord(batch, schema, r) for r in read_key_records(warehouse, batch, schema, key)]
    return found
