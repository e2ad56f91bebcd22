"""Valid values by default, so that a test names only what matters to it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from app.catalog.database import CatalogDatabase
from app.catalog.repository import ClaimedTask, Repository
from app.core.errors import KeyfoldError
from app.core.table.history import Batch, DataFile, NewBatch, Run, Snapshot, Table, TaskKind, TaskTrigger
from app.core.table.schema import TableSchema


def schema(*values: str, options: Mapping[str, str] | None = None) -> TableSchema:
    """A key column ``id`` and text columns."""
    columns = [("id", "BIGINT NOT NULL"), *((name, "STRING") for name in values or ("value",))]
    fields = [{"id": number, "name": name, "type": kind} for number, (name, kind) in enumerate(columns)]
    return TableSchema.from_json({"fields": fields, "primaryKeys": ["id"], "options": dict(options or {})})


def new_batch(key: str | None = None, *, records: int = 3, fingerprint: str = "same body") -> NewBatch:
    """A staged file of its own."""
    batch_id = uuid.uuid4().hex
    return NewBatch(
        id=batch_id,
        schema_id=0,
        file=f"{batch_id}.arrow",
        records=records,
        ignored=0,
        size_bytes=100,
        fingerprint=fingerprint,
        idempotency_key=key,
    )


def run(name: str, *, files: int = 2) -> Run:
    """A run of small files whose token ranges touch."""
    lowest = [100 * n - 2**63 for n in range(files)]
    return Run(name, 0, tuple(DataFile(f"{name}-{low}.parquet", 10, 1000, low, low + 99) for low in lowest))


def create_table(database: CatalogDatabase, name: str = "wide") -> Table:
    """A table of the database ``shop``, which is created with its first table."""
    with database.transaction() as repository:
        if not repository.databases.page(limit=1):
            repository.databases.create("shop", {})
        return repository.tables.create("shop", name, schema())


def post(database: CatalogDatabase, table: Table, *, records: int = 3) -> Batch:
    """One accepted POST."""
    with database.transaction() as repository:
        return add_batch(repository, table.id, new_batch(records=records))


def add_batch(repository: Repository, table_id: str, new: NewBatch) -> Batch:
    """The batch that ``new`` became. Raise what kept it out."""
    [outcome] = repository.batches.add(repository.tables.lock(table_id), [new])
    if isinstance(outcome, KeyfoldError):
        raise outcome
    return outcome


def claim_next(
    repository: Repository, owner: str, lease_seconds: float, kind: TaskKind = TaskKind.MERGE
) -> ClaimedTask | None:
    """The claim of the task of the kind that a worker would take first; None where it would take none."""
    if kind is TaskKind.MERGE:
        waiting = [(one.task_id, one.table.id) for one in repository.rounds.waiting()]
    else:
        waiting = [(compaction.id, compaction.table_id) for compaction in repository.claimed_tasks.compactions()]
    claims = (repository.claimed_tasks.take(*one, owner, lease_seconds) for one in waiting)
    return next((claimed for claimed in claims if claimed is not None), None)


def request_and_claim(
    database: CatalogDatabase, table: Table, owner: str = "worker", lease_seconds: float = 600
) -> ClaimedTask:
    """A merge of the table, claimed; with ``lease_seconds=0`` its lease is over at once."""
    with database.transaction() as repository:
        requested = repository.tasks.request(table.id, TaskTrigger.REQUEST)
    with database.transaction() as repository:
        claimed = claim_next(repository, owner, lease_seconds)
    assert claimed is not None
    assert claimed.task.id == requested.id
    return claimed


def commit(
    database: CatalogDatabase, claimed: ClaimedTask, runs: Sequence[Run], *, owner: str | None = None
) -> Snapshot:
    """The commit of a claimed merge on the base that it was claimed with."""
    with database.transaction() as repository:
        return repository.claimed_tasks.commit_merge(
            claimed.task.id,
            owner or claimed.lease_owner,
            runs,
            base_snapshot_id=claimed.base.id if claimed.base else None,
            rows=sum(run.rows for run in runs),
            records=sum(batch.records for batch in claimed.batches),
        )


def grow(database: CatalogDatabase, table: Table, *names: str) -> list[Snapshot]:
    """A snapshot per name that has this one run only."""
    return [commit(database, request_and_claim(database, table), [run(name)]) for name in names]


CATALOGS = ("sqlite", "postgresql")


def by_turns(seeds: int) -> list[tuple[str, int]]:
    """Seeds of random histories of services, each with the catalog that it is played on, two and two by turns: what
    a history comes to is the same on both, and each has histories of all sorts.
    """
    return [(CATALOGS[seed // 2 % 2], seed) for seed in range(seeds)]
