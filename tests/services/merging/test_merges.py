"""Merges from the request to the commit: what is due, what a failure leaves, what crashes and rivals cannot break."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from app.catalog.database import CatalogDatabase
from app.core.table.history import BatchState, Table, TaskKind, TaskState, TaskTrigger
from app.files.layout import Warehouse
from app.kernel.tasks import Job, Progress, Result
from app.services.merging.merges import DueMerges, request_due_merges, request_merge
from app.services.rows.lookups import Images
from app.services.shared.executor import MergeSite
from tests.services.builders import (
    QUIET,
    SUM,
    batches_of,
    claim,
    committed,
    compact,
    create_table,
    merge,
    post,
    run_next_compaction,
    run_next_merge,
    snapshot_of,
    tasks_of,
    totals,
)
from tests.services.executor import BrokenExecutor, InterruptedExecutor, Killed, PythonExecutor, die


def states_of(database: CatalogDatabase, table: Table) -> list[BatchState]:
    """The states of the table's batches in arrival order."""
    return [batch.state for batch in batches_of(database, table)]


def soon(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


# What is due


def test_staged_batches_are_due_once_the_oldest_is_stale(site: MergeSite) -> None:
    table = create_table(site.database, SUM | {"merge.max-staleness": "1 h"})
    assert request_due_merges(site.database) == DueMerges(0, None)
    accepted_at = post(site.database, site.warehouse, {"id": 1, "n": 1}).accepted_at
    assert request_due_merges(site.database, accepted_at + timedelta(seconds=3500)) == DueMerges(0, 100.0)
    assert request_due_merges(site.database, accepted_at + timedelta(hours=1)) == DueMerges(1, None)
    [wanted] = tasks_of(site.database, table)
    assert (wanted.state, wanted.trigger) == (TaskState.PENDING, TaskTrigger.STALENESS)


def test_enough_staged_records_are_due_at_once(site: MergeSite) -> None:
    table = create_table(site.database, SUM | QUIET | {"merge.max-staged-rows": "3"})
    post(site.database, site.warehouse, {"id": 1, "n": 1}, {"id": 2, "n": 1})
    assert request_due_merges(site.database).tables == 0
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    assert request_due_merges(site.database).tables == 1
    assert [task.trigger for task in tasks_of(site.database, table)] == [TaskTrigger.ROWS]


def test_a_table_without_staged_batches_is_never_due(site: MergeSite) -> None:
    table = create_table(site.database)
    assert request_due_merges(site.database, soon(10**6)).tables == 0
    merge(site, table, {"id": 1, "n": 1})
    assert request_due_merges(site.database, soon(10**6)).tables == 0


def test_a_table_that_waits_for_ages_does_not_keep_the_others_waiting(site: MergeSite) -> None:
    create_table(site.database, SUM | {"merge.max-staleness": "100000000 d"})
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    with site.database.transaction() as repository:
        repository.tables.rename("shop", "wide", "shop", "patient")
    other = create_table(site.database)
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    assert request_due_merges(site.database, soon(60)).tables == 1
    assert len(tasks_of(site.database, other)) == 1


@pytest.mark.slow(reason="asks at every step of a long back-off")
def test_a_table_whose_merges_fail_waits_longer_each_time(site: MergeSite) -> None:
    table = create_table(site.database)
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    broken = replace(site, executor=BrokenExecutor(RuntimeError("no luck")))
    waits = []
    for _ in range(11):
        merge(broken, table)
        failed_at = tasks_of(site.database, table)[0].finished_at
        assert failed_at is not None
        choices = [2**step for step in range(9)] + [300]
        due = [
            seconds
            for seconds in choices
            if request_due_merges(site.database, failed_at + timedelta(seconds=seconds, milliseconds=-1)).tables == 0
            and request_due_merges(site.database, failed_at + timedelta(seconds=max(seconds, 2))).tables == 1
        ]
        waits.append(due[-1])
        with site.database.transaction() as repository:  # what the probe asked for
            repository.tasks.request_cancel(table.id, tasks_of(site.database, table)[0].id)
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


def test_after_a_success_the_table_is_merged_as_soon_as_ever(site: MergeSite) -> None:
    table = create_table(site.database)
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    for _ in range(5):
        merge(replace(site, executor=BrokenExecutor(RuntimeError("no luck"))), table)
    assert request_due_merges(site.database, soon(2)).tables == 0
    assert merge(site, table).state is TaskState.SUCCEEDED
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    assert request_due_merges(site.database, soon(2)).tables == 1


def test_a_table_whose_merge_has_failed_is_due_when_it_may_be_tried_again(site: MergeSite) -> None:
    table = create_table(site.database, SUM | {"merge.max-staleness": "0 s"})
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    failed_at = merge(replace(site, executor=BrokenExecutor(RuntimeError("no luck"))), table).finished_at
    assert failed_at is not None
    assert request_due_merges(site.database, failed_at) == DueMerges(0, 1.0)
    assert request_due_merges(site.database, failed_at + timedelta(seconds=1)) == DueMerges(1, None)


# What a merge does


def test_a_merge_folds_all_staged_batches_into_one_run(
    site: MergeSite, images: Images, executor: PythonExecutor
) -> None:
    table = create_table(site.database)
    post(site.database, site.warehouse, {"id": 1, "n": 1}, {"id": 2, "n": 5})
    post(site.database, site.warehouse, {"id": 1, "n": 2})
    done = merge(site, table)
    assert (done.state, done.batches, done.records, done.rows) == (TaskState.SUCCEEDED, 2, 3, 2)
    assert done.progress == 1.0
    snapshot = snapshot_of(site.database, table)
    assert (snapshot.id, snapshot.merge_id, len(snapshot.runs)) == (done.snapshot_id, done.id, 1)
    assert states_of(site.database, table) == [BatchState.MERGED] * 2
    assert totals(site.database, images, table, [1, 2, 3]) == [3, 5, None]
    assert executor.merges == 1


@pytest.mark.parametrize("posted", [0, 1])
def test_a_merge_of_nothing_succeeds_without_spark(site: MergeSite, executor: PythonExecutor, posted: int) -> None:
    table = create_table(site.database, {"ignore-delete": "true"})
    for _ in range(posted):
        post(site.database, site.warehouse, {"id": 1, "_kind": "-D"})
    done = merge(site, table)
    assert (done.state, done.snapshot_id, executor.merges) == (TaskState.SUCCEEDED, None, 0)
    assert states_of(site.database, table) == [BatchState.MERGED] * posted


def test_a_failed_merge_keeps_the_batches_staged_and_says_why(site: MergeSite, images: Images) -> None:
    table = create_table(site.database)
    broken = replace(site, executor=BrokenExecutor(RuntimeError("the disk is full\nat Frame.java")))
    failed = merge(broken, table, {"id": 1, "n": 4})
    assert failed.state is TaskState.FAILED
    assert failed.error.startswith("the disk is full (nothing was changed; the batches are still staged")
    assert states_of(site.database, table) == [BatchState.STAGED]
    assert not committed(site.database, table)
    assert totals(site.database, images, table, [1]) == [None]
    assert totals(site.database, images, table, [1], latest=True) == [4]
    merge(site, table)
    assert totals(site.database, images, table, [1]) == [4]


def test_an_error_without_words_is_reported_by_its_name(site: MergeSite) -> None:
    table = create_table(site.database)
    failed = merge(replace(site, executor=BrokenExecutor(TimeoutError())), table, {"id": 1, "n": 4})
    assert failed.error.startswith("TimeoutError (")


# Crashes and rivals


def test_a_worker_that_dies_between_fold_and_commit_leaves_nothing_and_the_next_one_does_it_once(
    database: CatalogDatabase, warehouse: Warehouse, images: Images
) -> None:
    table = create_table(database)
    post(database, warehouse, {"id": 1, "n": 5})
    dying = MergeSite(database, warehouse, InterruptedExecutor(die), lease_seconds=0.001)
    wanted = request_merge(database, table.id)
    with pytest.raises(Killed):
        run_next_merge(dying, "dies")
    assert not committed(database, table)
    assert totals(database, images, table, [1]) == [None]
    assert states_of(database, table) == [BatchState.STAGED]
    post(database, warehouse, {"id": 1, "n": 2})
    assert run_next_merge(MergeSite(database, warehouse, PythonExecutor(), 600), "next")
    assert [(task.id, task.state, task.batches) for task in tasks_of(database, table)] == [
        (wanted.id, TaskState.SUCCEEDED, 2)
    ]
    assert totals(database, images, table, [1]) == [7]


def test_a_worker_that_lost_its_lease_cannot_commit_after_the_other_one(site: MergeSite, images: Images) -> None:
    table = create_table(site.database)
    late = InterruptedExecutor(lambda: lose_lease_to(site, table))
    merge(replace(site, executor=late), table, {"id": 1, "n": 5})
    assert [task.state for task in tasks_of(site.database, table)] == [TaskState.SUCCEEDED]
    snapshot = snapshot_of(site.database, table)
    assert (snapshot.id, len(snapshot.runs)) == (1, 1)
    assert totals(site.database, images, table, [1]) == [5]


def lose_lease_to(rival: MergeSite, table: Table) -> None:
    """The running merge's lease runs out and ``rival`` does the merge."""
    [running] = [task for task in tasks_of(rival.database, table) if task.state is TaskState.RUNNING]
    with rival.database.transaction() as repository:
        repository.claimed_tasks.renew(running.id, "worker", -1)
    assert run_next_merge(rival, "rival")


def test_a_worker_whose_lease_is_taken_over_but_not_yet_committed_writes_nothing(site: MergeSite) -> None:
    table = create_table(site.database)
    post(site.database, site.warehouse, {"id": 1, "n": 5})

    def take_over() -> None:
        [running] = tasks_of(site.database, table)
        with site.database.transaction() as repository:
            repository.claimed_tasks.renew(running.id, "late", -1)
        assert claim(site, "rival", TaskKind.MERGE) is not None

    request_merge(site.database, table.id)
    assert run_next_merge(MergeSite(site.database, site.warehouse, InterruptedExecutor(take_over), 600), "late")
    assert not committed(site.database, table)
    assert [task.state for task in tasks_of(site.database, table)] == [TaskState.RUNNING]
    with site.database.reading() as repository:
        assert [batch.number for batch in repository.batches.staged(table.id)] == [1]


def test_a_merge_commits_on_top_of_a_compaction_that_came_meanwhile(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, SUM | {"num-sorted-run.compaction-trigger": "50"})
    for _ in range(3):
        merge(site, table, {"id": 1, "n": 1})
    post(site.database, site.warehouse, {"id": 1, "n": 10})
    request_merge(site.database, table.id)
    interrupted = InterruptedExecutor(lambda: compact(site, table))
    assert run_next_merge(replace(site, executor=interrupted), "worker")
    snapshot = snapshot_of(site.database, table)
    assert (snapshot.id, len(snapshot.runs)) == (5, 2)
    assert totals(site.database, images, table, [1]) == [13]


@pytest.mark.parametrize("in_compaction", [False, True])
def test_a_table_dropped_while_its_merge_runs_takes_the_merge_along(
    database: CatalogDatabase, warehouse: Warehouse, images: Images, in_compaction: bool
) -> None:
    table = create_table(database, SUM | {"full-compaction.delta-commits": "1"})

    def drop() -> None:
        with database.transaction() as repository:
            repository.tables.drop("shop", "wide")

    post(database, warehouse, {"id": 1, "n": 5})
    request_merge(database, table.id)
    executor = InterruptedExecutor(drop, in_compaction=in_compaction)
    site = MergeSite(database, warehouse, executor, 600)
    assert run_next_merge(site, "worker")
    assert run_next_compaction(site, "compactor") is in_compaction
    assert not committed(database, table)
    assert tasks_of(database, table) == []
    again = create_table(database)
    post(database, warehouse, {"id": 1, "n": 1})
    assert merge(MergeSite(database, warehouse, PythonExecutor(), 600), again).state is TaskState.SUCCEEDED
    assert totals(database, images, again, [1]) == [1]


class LostFiles(PythonExecutor):
    """Writes where nobody looks, as a Spark server does that has another disk."""

    def merge(self, tag: str, job: Job, report: Progress) -> list[Result]:
        tasks = tuple(replace(task, output=f"{task.output}-elsewhere") for task in job.tasks)
        return super().merge(tag, replace(job, tasks=tasks), report)


def test_a_merge_whose_files_cannot_be_seen_loses_no_batch(site: MergeSite, images: Images) -> None:
    table = create_table(site.database)
    failed = merge(replace(site, executor=LostFiles()), table, {"id": 1, "n": 1})
    assert failed.state is TaskState.FAILED
    assert "KEYFOLD_WAREHOUSE" in (failed.error or "")
    assert states_of(site.database, table) == [BatchState.STAGED]
    assert merge(site, table).state is TaskState.SUCCEEDED
    assert totals(site.database, images, table, [1]) == [1]
