"""Counts of the catalog: what waits, what is kept, what was done."""

from __future__ import annotations

from app.catalog.database import CatalogDatabase
from app.catalog.upkeep.stats import RetainedTotals, StagedTotals
from app.core.table.history import SnapshotKind, Table, TaskKind, TaskTrigger
from tests.catalog.builders import claim_next, commit, create_table, post, request_and_claim, run


def test_an_untouched_table_counts_nothing(database: CatalogDatabase) -> None:
    table, other = create_table(database), create_table(database, "other")
    post(database, other)
    commit(database, request_and_claim(database, other), [run("a")])
    with database.reading() as repository:
        assert repository.stats.staged(table.id) == StagedTotals()
        assert repository.stats.retained(table.id) == RetainedTotals()
        assert repository.stats.succeeded(table.id, TaskKind.MERGE) == (0, None)


def test_staged_batches_count_until_they_are_merged(database: CatalogDatabase, table: Table) -> None:
    first = post(database, table, records=2)
    post(database, table, records=5)
    with database.reading() as repository:
        assert repository.stats.staged(table.id) == StagedTotals(2, 7, 200, first.accepted_at)
    claimed = request_and_claim(database, table)
    with database.reading() as repository:
        assert repository.stats.staged(table.id).batches == 2
    commit(database, claimed, [run("a")])
    with database.reading() as repository:
        assert repository.stats.staged(table.id) == StagedTotals()


def test_files_that_several_snapshots_keep_count_once(database: CatalogDatabase, table: Table) -> None:
    commit(database, request_and_claim(database, table), [run("a")])
    commit(database, request_and_claim(database, table), [run("a"), run("b", files=3)])
    with database.transaction() as repository:
        repository.snapshots.commit(table.id, 2, [run("ab", files=1)], SnapshotKind.COMPACTION)
        repository.tags.create(table.id, "v1", 1, None)
    with database.reading() as repository:
        assert repository.stats.retained(table.id) == RetainedTotals(3, 1, 6, 6000)
    with database.transaction() as repository:
        repository.snapshots.expire(table.id, [])
        assert repository.stats.retained(table.id) == RetainedTotals(2, 1, 3, 3000)


def test_only_what_succeeded_counts_by_its_kind(database: CatalogDatabase, table: Table) -> None:
    commit(database, request_and_claim(database, table), [run("a")])
    last = request_and_claim(database, table)
    commit(database, last, [run("a"), run("b")])
    failed = request_and_claim(database, table)
    with database.transaction() as repository:
        repository.claimed_tasks.fail(failed.task.id, "worker", "no luck")
        repository.tasks.request(table.id, TaskTrigger.RUNS, TaskKind.COMPACTION)
        claimed = claim_next(repository, "worker", 600, TaskKind.COMPACTION)
        assert repository.stats.succeeded(table.id, TaskKind.COMPACTION) == (0, None)
        assert (
            repository.tasks.oldest_running_since(table.id)
            == repository.tasks.get(table.id, claimed.task.id).started_at
        )
        repository.claimed_tasks.finish_compaction(claimed.task.id, "worker", snapshot_id=None, rows=0)
    with database.reading() as repository:
        count, newest = repository.stats.succeeded(table.id, TaskKind.MERGE)
        assert (count, newest and newest.id) == (2, last.task.id)
        count, newest = repository.stats.succeeded(table.id, TaskKind.COMPACTION)
        assert (count, newest and newest.id) == (1, claimed.task.id)
        assert repository.tasks.oldest_running_since(table.id) is None
