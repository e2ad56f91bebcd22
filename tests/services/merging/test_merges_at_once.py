"""A worker that runs several merges at a time: none waits for another table's, and all are kept, cancelled and handed
back by themselves.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.catalog.database import CatalogDatabase
from app.core.table.history import Table, TaskState
from app.services.merging.merges import request_due_merges, request_merge
from app.services.rows.lookups import Images
from app.services.shared.executor import MergeSite
from tests.services.builders import QUIET, SUM, create_table, post, tasks_of, totals
from tests.services.clocks import SetClock, clock, clocked
from tests.services.executor import GatedExecutor
from tests.services.merging.test_worker import until, working

__all__ = ["clock", "clocked"]

pytestmark = pytest.mark.slow(reason="workers look for work in their own time")

DUE = SUM | {"merge.max-staleness": "0 s"}


def staged_tables(site: MergeSite, count: int, options: dict[str, str] = DUE) -> list[Table]:
    """Tables with one staged batch each, accepted in the order of the list, whose merges share no job."""
    apart = options | {"changelog-producer": "input"}
    tables = [create_table(site.database, apart, f"t{number}") for number in range(count)]
    for table in tables:
        stage(site, table)
    return tables


def stage(site: MergeSite, table: Table) -> None:
    post(site.database, site.warehouse, {"id": 1, "n": 1}, name=table.name)


def merged(site: MergeSite, tables: Sequence[Table]) -> bool:
    with site.database.reading() as repository:
        return not any(repository.batches.staged(table.id) for table in tables)


def states(site: MergeSite, table: Table) -> list[TaskState]:
    """Of its merges, newest first."""
    return [merge.state for merge in tasks_of(site.database, table)]


def test_a_slow_table_delays_no_other(site: MergeSite, images: Images) -> None:
    slow, *others = staged_tables(site, 6)
    executor = GatedExecutor(held=[slow.id])
    with working(replace(site, executor=executor), merges_at_once=2):
        assert until(lambda: merged(site, others))
        assert states(site, slow) == [TaskState.RUNNING]
        executor.gate.set()
        assert until(lambda: merged(site, [slow]))
    assert [totals(site.database, images, table, [1]) for table in (slow, *others)] == [[1]] * 6


def test_tables_whose_merges_fail_hold_no_slot_while_they_wait(site: MergeSite) -> None:
    *failing, good = staged_tables(site, 4)
    executor = GatedExecutor(failing=[table.id for table in failing])
    with working(replace(site, executor=executor)):
        for _ in range(5):
            stage(site, good)
            assert until(lambda: merged(site, [good]))
        assert until(lambda: all(TaskState.FAILED in states(site, table) for table in failing))
    # They are tried after one second, then two, …
    assert all(executor.begun.count(table.id) <= 6 for table in failing)


def test_as_many_merges_run_as_may_and_one_of_a_table(site: MergeSite) -> None:
    tables = staged_tables(site, 5)
    executor = GatedExecutor(held=[table.id for table in tables])
    with working(replace(site, executor=executor), merges_at_once=3):
        assert until(lambda: len(executor.running) == 3)
        for table in tables:
            stage(site, table)
            request_merge(site.database, table.id)
        time.sleep(0.3)
        assert len(set(executor.running)) == len(executor.running) == 3
        executor.gate.set()
        assert until(lambda: merged(site, tables))
    assert executor.most == 3


def test_the_table_that_has_waited_longest_is_merged_first(site: MergeSite) -> None:
    tables = staged_tables(site, 6)
    executor = GatedExecutor()
    with working(replace(site, executor=executor)):
        assert until(lambda: merged(site, tables))
    assert executor.begun == [table.id for table in tables]


def test_due_merges_of_all_tables_are_requested_in_one_step(site: MergeSite) -> None:
    staged_tables(site, 10)
    before, _ = site.database.commits
    assert request_due_merges(site.database).tables == 10
    assert site.database.commits[0] == before + 1
    assert request_due_merges(site.database).tables == 10
    assert site.database.commits[0] == before + 1


def test_cancelling_one_of_several_stops_no_other(site: MergeSite) -> None:
    unwanted, wanted = staged_tables(site, 2, SUM | QUIET)
    cancelled, _ = (request_merge(site.database, table.id) for table in (unwanted, wanted))
    executor = GatedExecutor(held=[unwanted.id, wanted.id])
    with working(replace(site, executor=executor), merges_at_once=2):
        assert until(lambda: len(executor.running) == 2)
        with site.database.transaction() as repository:
            repository.tasks.request_cancel(unwanted.id, cancelled.id)
        assert until(lambda: states(site, unwanted) == [TaskState.CANCELLED])
        assert states(site, wanted) == [TaskState.RUNNING]
        executor.gate.set()
        assert until(lambda: states(site, wanted) == [TaskState.SUCCEEDED])


def test_the_leases_of_all_merges_are_kept_beside_a_rival(site: MergeSite) -> None:
    tables = staged_tables(site, 3, SUM | QUIET)
    for table in tables:
        request_merge(site.database, table.id)
    executor = GatedExecutor(held=[table.id for table in tables])
    short = replace(site, executor=executor, lease_seconds=1.5)
    with working(short, merges_at_once=3):
        assert until(lambda: len(executor.running) == 3)
        with working(short, merges_at_once=3):
            time.sleep(3)
        executor.gate.set()
        assert until(lambda: merged(site, tables))
    assert sorted(executor.begun) == sorted(table.id for table in tables)


def test_a_worker_that_ends_hands_back_what_it_could_not_finish(site: MergeSite, images: Images) -> None:
    tables = staged_tables(site, 2)
    executor = GatedExecutor(held=[table.id for table in tables])
    with working(replace(site, executor=executor), merges_at_once=2) as worker:
        assert until(lambda: len(executor.running) == 2)
        worker.stop(1.0)
    assert until(lambda: not executor.running)
    assert [states(site, table) for table in tables] == [[TaskState.RUNNING]] * 2
    with working(site, merges_at_once=2):  # the leases were for ten minutes
        assert until(lambda: merged(site, tables))
    assert [states(site, table) for table in tables] == [[TaskState.SUCCEEDED]] * 2
    assert [totals(site.database, images, table, [1]) for table in tables] == [[1]] * 2


def test_a_worker_that_takes_a_merge_from_itself_folds_every_batch_once(
    site: MergeSite, clocked: CatalogDatabase, clock: SetClock, images: Images
) -> None:
    """The clock ends the lease before it is renewed; the second claim takes the batch that came meanwhile, too."""
    site = replace(site, database=clocked, lease_seconds=600)
    [table] = staged_tables(site, 1, SUM | QUIET)
    request_merge(clocked, table.id)
    executor = GatedExecutor(held=[table.id])
    with working(replace(site, executor=executor), merges_at_once=2):
        assert until(lambda: len(executor.running) == 1)
        stage(site, table)
        while executor.begun.count(table.id) == 1:
            clock.move(hours=1)
            time.sleep(0.05)
        executor.gate.set()
        assert until(lambda: merged(site, [table]) and not executor.running)
    assert totals(clocked, images, table, [1]) == [2]
