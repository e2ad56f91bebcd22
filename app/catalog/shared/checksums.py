"""Checksums of the catalog's rows of tables, files, batches and schemas, so that a flipped bit never becomes an
answer.

Rows from before migration 0015 have none. They do not include the digests of files, which may be added later; a
damaged digest shows when it is compared with its file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from xxhash import xxh3_64_hexdigest

from app.catalog.shared.transaction import AnyRow
from app.core.errors import DamagedCatalog
from app.core.table.history import Batch, Run, Snapshot

_OF_TABLE = ("id", "database_id", "name", "name_hash", "schema_id", "snapshot_id")


def _checksum(*values: object) -> str:
    return xxh3_64_hexdigest(repr(values).encode("utf-8", "surrogatepass"))


def of_name(database: str, name: str) -> str:
    """Return the checksum of a table's full name, for ``name_hash``."""
    return _checksum(database, name)


def of_table(row: AnyRow, **changed: object) -> str:
    """Return the checksum of a row of ``tables``, with the values ``changed``: the table's identity, its schema and
    its snapshot.

    The row's counters are not included: they change too often, and no answer depends on them.
    """
    return _checksum(*(changed[name] if name in changed else getattr(row, name) for name in _OF_TABLE))


def of_new_table(values: Mapping[str, object]) -> str:
    """Return the checksum, as ``of_table`` does, of a row that is not inserted yet."""
    return _checksum(*(values.get(name) for name in _OF_TABLE))


def check_table(row: AnyRow) -> None:
    """Raise ``DamagedCatalog`` if a row of ``tables`` does not match its checksum."""
    check(row.checksum, of_table(row), f"the row of table {row.id}")


def of_run(table_id: str, run: Run) -> str:
    """Return the checksum of a run and its files."""
    files = [(file.name, file.rows, file.size_bytes, file.min_token, file.max_token) for file in run.files]
    changed_at = None if run.changed_at is None else run.changed_at.isoformat()
    totals = () if run.totals is None else (json.dumps(run.totals, sort_keys=True),)
    return _checksum(
        table_id, run.id, run.schema_id, run.partition, run.full, changed_at, run.live_rows, files, *totals
    )


def of_snapshot(table_id: str, number: int, schema_id: int, run_ids: Sequence[str]) -> str:
    """Return the checksum of the list of a snapshot's runs, oldest first."""
    return _checksum(table_id, number, schema_id, [*run_ids])


def of_snapshot_made(snapshot: Snapshot) -> str:
    """Return the checksum of a new snapshot with its runs."""
    return of_snapshot(snapshot.table_id, snapshot.id, snapshot.schema_id, [run.id for run in snapshot.runs])


def of_runs_named(table_id: str, number: int) -> str:
    """Return the name of the object of ``of_snapshot`` for messages."""
    return f"the list of runs of snapshot {number} of table {table_id}"


def of_batch(batch: Batch) -> str:
    """Return the checksum of the constant columns of a batch; a change to them must compute it again."""
    return _checksum(
        batch.id,
        batch.table_id,
        batch.number,
        batch.schema_id,
        batch.file,
        batch.records,
        batch.ignored,
        batch.size_bytes,
        batch.fingerprint,
        batch.idempotency_key,
    )


def batch_of(row: AnyRow) -> Batch:
    """Return the batch of a row of ``batches``. Raise ``DamagedCatalog`` if it does not match its checksum."""
    values = dict(row._mapping)
    stored = values.pop("checksum")
    batch = Batch(**values)
    check(stored, of_batch(batch), f"batch {batch.id} of table {batch.table_id}")
    return batch


def of_schema(table_id: str, schema_id: int, body: str) -> str:
    """Return the checksum of a stored schema."""
    return _checksum(table_id, schema_id, body)


def check(stored: str | None, computed: str, what: str) -> None:
    """Raise ``DamagedCatalog`` if the checksum of ``what`` does not match."""
    if stored is not None and stored != computed:
        raise DamagedCatalog(f"{what} is not what was stored")
