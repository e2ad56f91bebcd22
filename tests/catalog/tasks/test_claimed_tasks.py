"""Merges of the catalog as workers run them."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import sqlalchemy as sa

from app.catalog.database import CatalogDatabase
from app.catalog.repository import ClaimedTask
from app.core.errors import Conflict, ErrorCode
from app.core.table.history import BatchState, SnapshotKind, Table, TaskKind, TaskState, TaskTrigger, Written
from tests.catalog.builders import claim_next, commit, create_table, post, request_and_claim, run


@pytest.mark.slow(reason="threads race for a while")
def test_no_two_workers_get_the_same_table(database: CatalogDatabase) -> None:
    tables = [create_table(database, f"t{number}") for number in range(6)]
    running: Counter[str] = Counter()
    merged: Counter[str] = Counter()
    count = threading.Lock()
    start = threading.Barrier(6)

    def work(worker: int) -> int:
        start.wait()
        done = 0
        for _ in range(12):
            for table in tables[worker % 3 :: 3]:
                post(database, table)
                with database.transaction() as repository:
                    repository.tasks.request(table.id, TaskTrigger.REQUEST)
            with database.transaction() as repository:
                claimed = claim_next(repository, f"worker {worker}", 600)
            if claimed is None:
                continue
            with count:
                running[claimed.table.id] += 1
                assert running[claimed.table.id] == 1
            base = claimed.base.runs if claimed.base else ()
            with count:
                running[claimed.table.id] -= 1
            commit(database, claimed, [*base, run(claimed.task.id, files=1)])
            with count:
                merged.update(batch.id for batch in claimed.batches)
            done += 1
        return done

    with ThreadPoolExecutor(6) as threads:
        commits = sum(threads.map(work, range(6)))
    with database.reading() as repository:
        assert set(merged.values()) == {1}
        assert sum(table.snapshot_id or 0 for table in repository.tables.page("shop", limit=9)) == commits
        posted = [batch for table in tables for batch in repository.batches.page(table.id, limit=999)]
    assert {batch.id for batch in posted if batch.state is BatchState.MERGED} == set(merged)


def test_one_of_many_workers_gets_the_only_merge(database: CatalogDatabase, table: Table) -> None:
    start = threading.Barrier(8)
    with database.transaction() as repository:
        repository.tasks.request(table.id, TaskTrigger.REQUEST)

    def claim(worker: int) -> ClaimedTask | None:
        start.wait()
        with database.transaction() as repository:
            return claim_next(repository, f"worker {worker}", 600)

    with ThreadPoolExecutor(8) as threads:
        claims = [claimed for claimed in threads.map(claim, range(8)) if claimed is not None]
    assert [claimed.table.id for claimed in claims] == [table.id]


@pytest.mark.slow(reason="threads race for a while")
def test_workers_that_claim_and_requesters_that_drop_do_not_deadlock(database: CatalogDatabase) -> None:
    start = threading.Barrier(4)

    def churn(name: str) -> None:
        for _ in range(10):
            table = create_table(database, name)
            post(database, table)
            with database.transaction() as repository:
                repository.tasks.request(table.id, TaskTrigger.REQUEST)
            with database.transaction() as repository:
                repository.tables.drop("shop", name)

    def work(worker: str) -> None:
        for _ in range(20):
            with database.transaction() as repository:
                claimed = claim_next(repository, worker, 600)
            if claimed is not None:
                with suppress(Conflict):  # its table was dropped meanwhile
                    commit(database, claimed, [run(claimed.task.id)])

    def side(number: int) -> None:
        start.wait()
        if number < 2:
            churn(f"t{number}")
        else:
            work(f"worker {number}")

    create_table(database, "first")  # so that the threads do not race to create the database
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(side, range(4))) == [None] * 4
    with database.reading() as repository:
        assert [table.name for table in repository.tables.page("shop", limit=9)] == ["first"]


def test_who_lost_the_lease_can_do_nothing_more(database: CatalogDatabase, table: Table) -> None:
    post(database, table)
    dead = request_and_claim(database, table, "dead", lease_seconds=0)
    with database.transaction() as repository:
        again = claim_next(repository, "alive", 600)
    assert again is not None
    with database.transaction() as repository:
        for operation in (
            lambda: repository.claimed_tasks.renew(dead.task.id, "dead", 600, 0.5, {}),
            lambda: repository.claimed_tasks.commit_merge(
                dead.task.id, "dead", [run("r")], base_snapshot_id=None, rows=1, records=1
            ),
            lambda: repository.claimed_tasks.fail(dead.task.id, "dead", "too late"),
            lambda: repository.claimed_tasks.finish_merge_without_changes(dead.task.id, "dead"),
        ):
            with pytest.raises(Conflict) as refused:
                operation()
            assert refused.value.code is ErrorCode.COMMIT_CONFLICT
    assert commit(database, again, [run("r")]).id == 1


def test_an_expired_lease_that_nobody_took_is_still_good(database: CatalogDatabase, table: Table) -> None:
    post(database, table)
    late = request_and_claim(database, table, lease_seconds=0)
    with database.transaction() as repository:
        assert repository.claimed_tasks.renew(late.task.id, "worker", 600, 0.5, {}) is False
        assert claim_next(repository, "another", 600) is None
    assert commit(database, late, [run("r")]).id == 1


def test_a_merge_cannot_end_twice(database: CatalogDatabase, table: Table) -> None:
    claimed = request_and_claim(database, table)
    commit(database, claimed, [run("r1")])
    with pytest.raises(Conflict):
        commit(database, claimed, [run("r1")])
    with pytest.raises(Conflict), database.transaction() as repository:
        repository.claimed_tasks.fail(claimed.task.id, "worker", "no")


def test_the_work_of_a_merge_whose_table_was_dropped_is_refused(database: CatalogDatabase, table: Table) -> None:
    claimed = request_and_claim(database, table)
    with database.transaction() as repository:
        repository.tables.drop("shop", "wide")
    with pytest.raises(Conflict):
        commit(database, claimed, [run("r1")])
    with database.transaction() as repository:
        with pytest.raises(Conflict):
            repository.claimed_tasks.renew(claimed.task.id, "worker", 600, 0.5, {})
        with pytest.raises(Conflict):
            repository.snapshots.commit(table.id, 1, [run("c1")], SnapshotKind.COMPACTION)


def test_a_merge_that_was_cancelled_before_its_worker_died_is_not_run_again(database: CatalogDatabase) -> None:
    table = create_table(database)
    batch = post(database, table)
    dead = request_and_claim(database, table, "dead", lease_seconds=0)
    with database.transaction() as repository:
        repository.tasks.request_cancel(table.id, dead.task.id)
        assert claim_next(repository, "alive", 600) is None
    with database.reading() as repository:
        assert repository.tasks.get(table.id, dead.task.id).state is TaskState.CANCELLED
        assert repository.batches.staged(table.id) == [batch]


def test_a_merge_without_records_succeeds_with_the_current_snapshot(database: CatalogDatabase, table: Table) -> None:
    commit(database, request_and_claim(database, table), [run("r1")])
    post(database, table, records=0)
    claimed = request_and_claim(database, table)
    with database.transaction() as repository:
        merge = repository.claimed_tasks.finish_merge_without_changes(claimed.task.id, "worker")
        assert (merge.state, merge.snapshot_id) == (TaskState.SUCCEEDED, 1)
        assert repository.batches.staged(table.id) == []
        assert [snapshot.id for snapshot in repository.snapshots.page(table.id, limit=9)] == [1]


def test_a_merge_with_records_cannot_finish_without_changes(database: CatalogDatabase, table: Table) -> None:
    batch = post(database, table)
    claimed = request_and_claim(database, table)
    with pytest.raises(ValueError, match="records"), database.transaction() as repository:
        repository.claimed_tasks.finish_merge_without_changes(claimed.task.id, "worker")
    with database.reading() as repository:
        assert [staged.id for staged in repository.batches.staged(table.id)] == [batch.id]


def test_a_compaction_runs_beside_a_merge_of_its_table_and_takes_no_batches(database: CatalogDatabase) -> None:
    table = create_table(database)
    post(database, table)
    merge = request_and_claim(database, table)
    first = commit(database, merge, [run("r1")])
    waiting = post(database, table)
    merging = request_and_claim(database, table)
    with database.transaction() as repository:
        asked = repository.tasks.request(table.id, TaskTrigger.RUNS, TaskKind.COMPACTION)
        assert repository.tasks.request(table.id, TaskTrigger.REQUEST, TaskKind.COMPACTION, full=True).id == asked.id
        assert claim_next(repository, "merger", 600) is None
        claimed = claim_next(repository, "compactor", 600, TaskKind.COMPACTION)
    assert (claimed.task.id, claimed.task.full, claimed.batches) == (asked.id, True, ())
    with database.transaction() as repository:
        compacted = repository.claimed_tasks.commit_compaction(
            asked.id, "compactor", [run("c1")], base_snapshot_id=first.id
        )
        ended = repository.claimed_tasks.finish_compaction(asked.id, "compactor", snapshot_id=compacted.id, rows=20)
        assert (ended.state, ended.snapshot_id, ended.rows) == (TaskState.SUCCEEDED, compacted.id, 20)
        assert [batch.id for batch in repository.batches.staged(table.id)] == [waiting.id]
        with pytest.raises(Conflict):
            repository.claimed_tasks.commit_compaction(
                asked.id, "compactor", [run("c2")], base_snapshot_id=compacted.id
            )
        assert repository.tables.written(table.id) == Written(merged=2000, compacted=2000)
    with pytest.raises(Conflict, match="another commit came first"):
        commit(database, merging, [run("r1"), run("r2")])


def test_a_look_for_work_reads_no_task_that_has_ended(database: CatalogDatabase) -> None:
    """All merges of days are listed, and workers look at every commit."""
    if not database.embedded:
        pytest.skip("what PostgreSQL reads depends on how many there are")
    seen: list[tuple[str, Any]] = []

    def note(_: object, __: object, statement: str, parameters: Any, *___: object) -> None:
        seen.append((statement, parameters))

    with database.reading() as repository:
        connection = repository.transaction.connection
        sa.event.listen(connection, "before_cursor_execute", note)
        repository.claimed_tasks.compactions_wait()
        repository.tasks.backlogs()
        repository.rounds.waiting()
        looks = [*seen]
        plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {look}", values).all() for look, values in looks]
    assert len(looks) == 4
    steps = [step.detail for plan in plans for step in plan]
    scans = [step for step in steps if step.startswith("SCAN") and "USING INDEX uq_merges" not in step]
    no_table_is_stopped = ("SCAN CONSTANT ROW", "SCAN (subquery")  # the empty list, as SQLAlchemy writes it
    assert not [step for step in scans if not step.startswith(no_table_is_stopped)], steps


def test_a_merge_that_is_claimed_again_takes_no_batch_after_those_that_are_to_be_forgotten(
    database: CatalogDatabase,
    table: Table,
) -> None:
    post(database, table)
    with database.transaction() as repository:
        repository.tasks.request(table.id, TaskTrigger.REQUEST)
        first = claim_next(repository, "dies", 0.0)
        repository.forgettings.add(table.id, "5a17", [], "", None)
    post(database, table)
    with database.transaction() as repository:
        again = claim_next(repository, "goes on", 60)
    assert (again.task.id, [batch.number for batch in again.batches]) == (first.task.id, [1])
