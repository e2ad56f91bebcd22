"""Batches that come at once share a transaction, and nothing else."""

from __future__ import annotations

import threading
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from app.catalog.database import CatalogDatabase
from app.core.errors import Conflict, KeyfoldError, KeyReused, NotFound, Unavailable
from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.record_decoder import RecordDecoder
from app.core.table.history import Batch, NewBatch, Table
from app.files.layout import Warehouse
from app.services.batches.group_commit import GroupCommit
from app.services.shared.executor import MergeSite
from app.storage.staging.staging import write_batch
from tests.services.builders import batches_of, create_table


def staged(warehouse: Warehouse, table: Table, key: str | None = None, schema_id: int | None = None) -> NewBatch:
    batch_id = uuid.uuid4().hex
    records = RecordDecoder(compile_plan(table.schema)).decode([{"id": 1, "n": 1}])
    file, size = write_batch(warehouse, table.id, batch_id, table.schema, records)
    schema = table.schema_id if schema_id is None else schema_id
    return NewBatch(batch_id, schema, file, 1, 0, size, f"print of {key and key[0]}", key)


def enter_together(
    database: CatalogDatabase, commits: GroupCommit, table: Table, batches: list[NewBatch]
) -> list[Batch | KeyfoldError]:
    """What becomes of ``batches`` that come while the catalog is held by another transaction."""

    def enter(new: NewBatch) -> Batch | KeyfoldError:
        try:
            return commits.enter(table.id, new)
        except KeyfoldError as error:
            return error

    with ThreadPoolExecutor(len(batches)) as pool:
        futures: list[Future[Batch | KeyfoldError]] = []
        with database.transaction() as repository:
            repository.tables.lock(table.id)
            for new in batches:
                futures.append(pool.submit(enter, new))
                time.sleep(0.02)
        return [future.result() for future in futures]


def test_each_of_a_group_has_its_own_number_in_the_order_in_which_they_came(site: MergeSite) -> None:
    table = create_table(site.database)
    commits = GroupCommit(site.database, site.warehouse)
    before, _ = site.database.commits
    entered = enter_together(site.database, commits, table, [staged(site.warehouse, table) for _ in range(10)])
    assert [batch.number for batch in entered if isinstance(batch, Batch)] == list(range(1, 11))
    assert site.database.commits[0] - before == 3  # who held the catalog, the first, and all others


def test_the_faults_of_one_are_not_those_of_the_others(database: CatalogDatabase, warehouse: Warehouse) -> None:
    table = create_table(database)
    first, again, other = staged(warehouse, table, "a"), staged(warehouse, table, "a"), staged(warehouse, table, "b")
    late, gone = staged(warehouse, table, schema_id=7), staged(warehouse, table)
    reused = NewBatch(**{**vars(staged(warehouse, table, "a")), "fingerprint": "another"})
    Path(warehouse.path(table.id, "staging", gone.file)).unlink()
    batches = [staged(warehouse, table), first, again, late, gone, reused, other]
    reported = enter_together(database, GroupCommit(database, warehouse), table, batches)
    assert [type(one) for one in reported] == [Batch, Batch, Batch, Conflict, Unavailable, KeyReused, Batch]
    assert reported[1] == reported[2]
    assert [batch.number for batch in batches_of(database, table)] == [1, 2, 3]


def test_a_dropped_table_fails_its_own_batches_only(database: CatalogDatabase, warehouse: Warehouse) -> None:
    kept, dropped = create_table(database), create_table(database, name="gone")
    news = [staged(warehouse, dropped), staged(warehouse, kept)]
    with database.transaction() as repository:
        repository.tables.drop("shop", "gone")
    commits = GroupCommit(database, warehouse)
    with pytest.raises(NotFound):
        commits.enter(dropped.id, news[0])
    assert commits.enter(kept.id, news[1]).number == 1


def test_a_crowd_leaves_nobody_waiting(database: CatalogDatabase, warehouse: Warehouse) -> None:
    table = create_table(database)
    commits = GroupCommit(database, warehouse)
    news = [staged(warehouse, table) for _ in range(60)]
    start = threading.Barrier(12)

    def enter(some: list[NewBatch]) -> list[int]:
        start.wait()
        return [commits.enter(table.id, new).number for new in some]

    with ThreadPoolExecutor(12) as pool:
        numbers = list(pool.map(enter, [news[place::12] for place in range(12)]))
    assert sorted(number for some in numbers for number in some) == list(range(1, 61))
    assert all(some == sorted(some) for some in numbers)
