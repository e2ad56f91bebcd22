"""A clock that is set back or forward loses no merge and postpones none."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from app.catalog.database import CatalogDatabase
from app.core.table.history import Table, TaskKind, TaskState
from app.files.layout import Warehouse
from app.services.merging.merges import request_due_merges, request_merge
from app.services.rows.lookups import Images
from app.services.shared.executor import MergeSite
from app.services.upkeep.sweeps import expire_snapshots
from tests.services.builders import (
    QUIET,
    SUM,
    claim,
    create_table,
    merge,
    post,
    request_compaction,
    run_next_compaction,
    run_next_merge,
    tasks_of,
    totals,
)
from tests.services.clocks import SetClock, clock, database
from tests.services.executor import BrokenExecutor, InterruptedExecutor, PythonExecutor

__all__ = ["clock", "database"]

AT_ONCE = SUM | {"merge.max-staleness": "0 s"}
ONE = {"id": 1, "n": 1}


@pytest.fixture
def site(database: CatalogDatabase, warehouse: Warehouse, executor: PythonExecutor) -> MergeSite:
    return MergeSite(database, warehouse, executor, lease_seconds=30)


def stage(site: MergeSite) -> None:
    post(site.database, site.warehouse, ONE)


def states(site: MergeSite, table: Table) -> list[TaskState]:
    return [task.state for task in tasks_of(site.database, table)]


@pytest.fixture
def merging(site: MergeSite) -> Table:
    """A table with a staged batch whose merge is asked for."""
    table = create_table(site.database, SUM | QUIET)
    stage(site)
    request_merge(site.database, table.id)
    return table


def test_a_batch_that_was_accepted_in_the_future_is_due(site: MergeSite, clock: SetClock) -> None:
    create_table(site.database, SUM | {"merge.max-staleness": "1 min"})
    stage(site)
    assert request_due_merges(site.database).tables == 0
    clock.move(hours=-1)
    assert request_due_merges(site.database).tables == 1


def test_a_batch_that_comes_while_dues_are_looked_for_is_not_one_of_a_clock_set_back(
    catalog_url: str, site: MergeSite, clock: SetClock
) -> None:
    table = create_table(site.database, SUM | {"merge.max-staleness": "1 min"})

    class Meanwhile(SetClock):
        """Another process accepts a batch a moment after the first time was read."""

        def __call__(self) -> datetime:
            now = super().__call__()
            if self.time == clock.time:
                self.move(seconds=1)
                clock.move(seconds=1)
                stage(site)
            return now

    looking = CatalogDatabase(catalog_url, Meanwhile())
    try:
        assert request_due_merges(looking).tables == 0
        clock.move(seconds=1)
        assert request_due_merges(looking).tables == 0
    finally:
        looking.close()
    assert states(site, table) == []


def test_a_merge_whose_worker_died_before_the_clock_was_set_back_is_taken_over(
    site: MergeSite, merging: Table, clock: SetClock, images: Images
) -> None:
    assert claim(site, "dead", TaskKind.MERGE) is not None
    clock.move(hours=-1)
    assert run_next_merge(site, "next")
    assert totals(site.database, images, merging, [1]) == [1]


def test_a_compaction_whose_worker_died_before_the_clock_was_set_back_is_taken_over(
    site: MergeSite, clock: SetClock
) -> None:
    table = create_table(site.database)
    for _ in range(2):
        merge(site, table, ONE)
    request_compaction(site.database, table)
    assert claim(site, "dead", TaskKind.COMPACTION) is not None
    clock.move(hours=-1)
    assert run_next_compaction(site, "next")


@pytest.mark.usefixtures("merging")
def test_a_lease_that_is_renewed_after_the_clock_was_set_back_is_kept(site: MergeSite, clock: SetClock) -> None:
    lease = claim(site, "alive", TaskKind.MERGE)
    clock.move(hours=-1)
    with site.database.transaction() as repository:
        repository.claimed_tasks.renew(lease.claimed.task.id, "alive", site.lease_seconds)
    assert not run_next_merge(site, "next")
    clock.move(seconds=31)
    assert run_next_merge(site, "next")


@pytest.mark.usefixtures("merging")
@pytest.mark.parametrize(("lease_seconds", "back"), [(30, 1), (3600, 0)])
def test_a_small_step_back_or_a_lease_of_another_length_takes_no_lease_away(
    site: MergeSite, clock: SetClock, lease_seconds: float, back: float
) -> None:
    assert claim(replace(site, lease_seconds=lease_seconds), "alive", TaskKind.MERGE) is not None
    clock.move(seconds=-back)
    assert not run_next_merge(site, "next")


def test_a_failure_of_the_future_does_not_postpone_the_next_try(site: MergeSite, clock: SetClock) -> None:
    table = create_table(site.database, AT_ONCE)
    stage(site)
    broken = replace(site, executor=BrokenExecutor(RuntimeError("no luck")))
    for _ in range(3):
        merge(broken, table)
    assert request_due_merges(site.database).tables == 0
    clock.move(hours=-1)
    assert request_due_merges(site.database).tables == 1
    assert run_next_merge(broken, "worker")
    # From here on the times are of this clock: the fourth failure is waited for as ever.
    assert request_due_merges(site.database).tables == 0
    clock.move(seconds=7)
    assert request_due_merges(site.database).tables == 0
    clock.move(seconds=1)
    assert request_due_merges(site.database).tables == 1


def test_failures_are_counted_since_the_last_success_whatever_the_clock_says(site: MergeSite, clock: SetClock) -> None:
    table = create_table(site.database, AT_ONCE)
    stage(site)
    broken = replace(site, executor=BrokenExecutor(RuntimeError("no luck")))
    for executor in (broken, broken, site, broken):
        merge(executor, table, ONE)
        clock.move(hours=-1)
    with site.database.reading() as repository:
        [backlog] = repository.tasks.backlogs()
    assert backlog.failures.in_a_row == 1


def test_a_merge_that_was_requested_in_the_future_is_not_overtaken_for_ever(site: MergeSite, clock: SetClock) -> None:
    first, other = create_table(site.database, name="wide"), create_table(site.database, name="other")
    request_merge(site.database, first.id)
    clock.move(hours=-1)
    request_merge(site.database, other.id)
    clock.move(seconds=1)
    assert run_next_merge(site, "worker")
    assert (states(site, first), states(site, other)) == ([TaskState.SUCCEEDED], [TaskState.PENDING])


@pytest.mark.parametrize("step", [{"hours": 1}, {"hours": -1}])
def test_a_merge_whose_lease_a_set_clock_ended_is_folded_once(
    site: MergeSite, merging: Table, clock: SetClock, images: Images, step: dict[str, float]
) -> None:
    """The rival claims the batch that came meanwhile, too; the late worker has not folded it and must not commit."""

    def rival() -> None:
        stage(site)
        clock.move(**step)
        assert run_next_merge(site, "rival")

    assert run_next_merge(replace(site, executor=InterruptedExecutor(rival)), "late")
    assert totals(site.database, images, merging, [1], latest=True) == [2]
    assert totals(site.database, images, merging, [1]) == [2]


def test_a_snapshot_of_the_future_expires_as_if_it_were_of_the_next_commit(site: MergeSite, clock: SetClock) -> None:
    retained = {"snapshot.num-retained.min": "1", "snapshot.time-retained": "10 min"}
    table = create_table(site.database, SUM | QUIET | retained)

    def kept() -> list[int]:
        with site.database.reading() as repository:
            return [snapshot.id for snapshot in repository.snapshots.page(table.id, limit=9)]

    for _ in range(2):
        merge(site, table, ONE)
        clock.move(hours=-1)
    clock.move(hours=1)
    expire_snapshots(site.database, site.warehouse)
    assert kept() == [2, 1]
    clock.move(minutes=10)
    expire_snapshots(site.database, site.warehouse)
    assert kept() == [2]
