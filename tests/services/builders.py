"""Valid values by default, so that a test names only what matters to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from app.catalog.database import CatalogDatabase
from app.core.errors import AlreadyExists
from app.core.plan.records.bounds import Bounds
from app.core.table.history import Batch, CatalogTask, Snapshot, Table, TaskKind
from app.core.table.schema import TableSchema
from app.files.layout import Warehouse
from app.services.batches.batches import Upload, accept_batch
from app.services.bodies.formats import JSON
from app.services.merging.compactions import ask_for_compaction, run_compaction
from app.services.merging.leases import Lease
from app.services.merging.merges import request_merge, run_merge
from app.services.rows.lookups import Consistency, Images, get_rows
from app.services.shared.executor import MergeSite
from app.services.snapshots.snapshots import RolledBack, roll_back
from app.services.tables.tables import alter_table
from tests.catalog.builders import claim_next
from tests.services.executor import PythonExecutor

SUM = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
NO_HISTORY = {"history.time-retained": "0"}
QUIET = {"merge.max-staleness": "1 d"}


def schema(
    *columns: tuple[str, str],
    key: Sequence[str] = ("id",),
    partitions: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> TableSchema:
    """``columns`` (name, type), by default a key ``id`` and a number ``n``."""
    fields = [{"name": name, "type": kind} for name, kind in columns or (("id", "BIGINT"), ("n", "BIGINT"))]
    keys = {"primaryKeys": list(key), "partitionKeys": list(partitions)}
    return TableSchema.from_json({"fields": fields, **keys, "options": dict(options or {})})


def create_table(
    database: CatalogDatabase,
    options: Mapping[str, str] = SUM,
    name: str = "wide",
    columns: Sequence[tuple[str, str]] = (),
    **keys: Sequence[str],
) -> Table:
    """A table of the database ``shop``, by default with a key ``id`` and a number ``n``."""
    return add_table(database, schema(*columns, options=options, **keys), name)


def add_table(database: CatalogDatabase, declared: TableSchema, name: str = "wide") -> Table:
    """A table of that schema in the database ``shop``, which is created with its first table."""
    try:
        with database.transaction() as repository:
            repository.databases.create("shop", {})
    except AlreadyExists:
        pass
    with database.transaction() as repository:
        return repository.tables.create("shop", name, declared)


def post(
    database: CatalogDatabase,
    warehouse: Warehouse,
    *records: Mapping[str, Any],
    key: str | None = None,
    name: str = "wide",
) -> Batch:
    """One accepted POST to the table ``name`` of ``shop``."""
    upload = Upload(json.dumps({"records": records}).encode(), JSON, key)
    return accept_batch(database, warehouse, "shop", name, upload, Bounds(1000)).batch


def committed(database: CatalogDatabase, table: Table) -> bool:
    """Whether the table has a snapshot."""
    with database.reading() as repository:
        return repository.snapshots.current(table.id) is not None


def tasks_of(database: CatalogDatabase, table: Table, kind: TaskKind | None = None) -> list[CatalogTask]:
    """The table's merges and compactions, or those of one kind, newest first."""
    with database.reading() as repository:
        return repository.tasks.page(table.id, limit=100, kind=kind)


def batches_of(database: CatalogDatabase, table: Table) -> list[Batch]:
    """The table's batches in arrival order."""
    with database.reading() as repository:
        return repository.batches.page(table.id, limit=1000)


def snapshot_of(database: CatalogDatabase, table: Table) -> Snapshot:
    """What readers of the table see now."""
    with database.reading() as repository:
        snapshot = repository.snapshots.current(table.id)
    assert snapshot is not None
    return snapshot


def totals(
    database: CatalogDatabase, images: Images, table: Table, ids: Sequence[int | None], *, latest: bool = False
) -> list[Any]:
    """The column ``n`` of the rows ``ids``; None where there is no row."""
    consistency = Consistency.LATEST if latest else Consistency.MERGED
    with database.reading() as repository:
        now = repository.tables.find(table.id) or table
        found = get_rows(repository, images, now, [(one,) for one in ids], consistency)
    return [None if one.row is None else one.row["n"] for one in found]


def claim(site: MergeSite, owner: str, kind: TaskKind) -> Lease | None:
    """The lease of the task of the kind that a worker would take first; None where it would take none."""
    with site.database.transaction() as repository:
        claimed = claim_next(repository, owner, site.lease_seconds, kind)
    return None if claimed is None else Lease(site, claimed)


def run_next_merge(site: MergeSite, owner: str) -> bool:
    """Run the merge that a worker would take first to its end, by itself; whether there was one."""
    lease = claim(site, owner, TaskKind.MERGE)
    if lease is not None:
        run_merge(lease)
    return lease is not None


def run_next_compaction(site: MergeSite, owner: str) -> bool:
    """The same of compactions."""
    lease = claim(site, owner, TaskKind.COMPACTION)
    if lease is not None:
        run_compaction(lease)
    return lease is not None


def merge_staged(database: CatalogDatabase, warehouse: Warehouse, table_id: str) -> CatalogTask:
    """A merge of everything staged, asked for and run."""
    with database.reading() as repository:
        table = repository.tables.existing(table_id)
    return merge(in_process(database, warehouse), table)


def in_process(database: CatalogDatabase, warehouse: Warehouse) -> MergeSite:
    """A site whose tasks run in this process."""
    return MergeSite(database, warehouse, PythonExecutor(), 600)


def merge(site: MergeSite, table: Table, *records: Mapping[str, Any]) -> CatalogTask:
    """A batch of ``records``, if there are any, and a merge of everything staged, run to whatever end."""
    if records:
        post(site.database, site.warehouse, *records, name=table.name)
    wanted = request_merge(site.database, table.id)
    assert run_next_merge(site, "worker")
    with site.database.reading() as repository:
        return repository.tasks.get(table.id, wanted.id)


def back_to(site: MergeSite, table: Table, number: int) -> RolledBack:
    """A rollback to that snapshot."""
    with site.database.transaction() as repository:
        return roll_back(repository, repository.tables.existing(table.id), number=number)


def set_options(database: CatalogDatabase, table: Table, options: Mapping[str, str]) -> Table:
    """What a user who sets them does."""
    changes = [{"action": "setOption", "key": key, "value": value} for key, value in options.items()]
    return alter_table(database, (table.database, table.name), changes)


def later(database: CatalogDatabase, **by: float) -> datetime:
    """The time by the clock of the catalog, later by ``timedelta(**by)``."""
    with database.reading() as repository:
        return repository.now() + timedelta(**by)


def request_compaction(database: CatalogDatabase, table: Table) -> CatalogTask:
    """A compaction of everything, asked for."""
    with database.transaction() as repository:
        return ask_for_compaction(repository, table.id)


def compact(site: MergeSite, table: Table) -> CatalogTask:
    """The same, run to whatever end."""
    wanted = request_compaction(site.database, table)
    assert run_next_compaction(site, "compactor")
    with site.database.reading() as repository:
        return repository.tasks.get(table.id, wanted.id)
