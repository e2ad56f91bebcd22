"""Merges wait for a compaction where a table has too many runs, never for ever, and nothing is lost meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.core.table.history import Table, TaskKind
from app.core.table.upkeep.overdue import OverdueReason
from app.services.merging.merges import request_merge
from app.services.merging.overdue import overdue_tables
from app.services.operating.scrapes import scrape_readings
from app.services.operating.stats import TableStats, table_stats
from app.services.rows.lookups import Images
from app.services.shared.executor import MergeSite
from app.telemetry.entries import Measured
from tests.services.builders import (
    SUM,
    claim,
    create_table,
    post,
    request_compaction,
    run_next_compaction,
    run_next_merge,
    set_options,
    totals,
)
from tests.services.clocks import SetClock, clock, database
from tests.services.executor import BrokenCompaction

__all__ = ["clock", "database"]

OPTIONS = SUM | {
    "merge.max-staleness": "1 s",
    "num-sorted-run.compaction-trigger": "3",
    "num-sorted-run.stop-trigger": "3",
}


@pytest.fixture
def table(site: MergeSite) -> Table:
    """A table with a run more than a compaction needs, which was asked for, and a batch on top."""
    table = create_table(site.database, OPTIONS)
    fill(site, table)
    return table


def fill(site: MergeSite, table: Table) -> None:
    for _ in range(3):
        assert merges(site, table)
    ask_for_merge(site, table)


def ask_for_merge(site: MergeSite, table: Table) -> None:
    post(site.database, site.warehouse, {"id": 1, "n": 1}, name=table.name)
    request_merge(site.database, table.id)


def merges(site: MergeSite, table: Table) -> bool:
    ask_for_merge(site, table)
    return run_next_merge(site, "worker")


def stats(site: MergeSite, table: Table) -> TableStats:
    with site.database.reading() as repository:
        return table_stats(repository, table)


def test_merges_of_this_table_alone_wait_until_it_has_ended_and_lookups_have_their_batches(
    site: MergeSite, table: Table, images: Images
) -> None:
    assert not run_next_merge(site, "worker")
    other = create_table(site.database, OPTIONS, name="other")
    assert merges(site, other)
    assert stats(site, other).merges_wait is None
    with site.database.reading() as repository:
        assert repository.rounds.waiting() == [], "nor in a round"
    assert totals(site.database, images, table, [1], latest=True) == [4]
    assert totals(site.database, images, table, [1]) == [3]
    assert run_next_compaction(site, "compactor")
    assert run_next_merge(site, "worker")
    assert totals(site.database, images, table, [1]) == [4]


@pytest.mark.usefixtures("table")
def test_they_wait_while_it_runs_too(site: MergeSite) -> None:
    assert claim(site, "compactor", TaskKind.COMPACTION) is not None
    assert not run_next_merge(site, "worker")


def test_a_compaction_that_somebody_asked_for_stops_no_merge_below_the_trigger(site: MergeSite) -> None:
    table = create_table(site.database, SUM)
    assert merges(site, table)
    request_compaction(site.database, table)
    assert merges(site, table)


def test_they_go_on_after_five_minutes_though_it_has_not_ended(site: MergeSite, table: Table, clock: SetClock) -> None:
    clock.move(seconds=299)
    assert not run_next_merge(site, "worker")
    clock.move(seconds=1)
    assert run_next_merge(site, "worker")
    assert merges(site, table), "and are not stopped again by what they ask for"


def test_they_go_on_when_it_has_failed_and_its_failure_is_reported(
    site: MergeSite, table: Table, clock: SetClock
) -> None:
    assert stats(site, table).compaction_failure is None
    assert run_next_compaction(replace(site, executor=BrokenCompaction()), "compactor")
    reported = stats(site, table)
    assert reported.merges_wait is None
    assert (reported.compaction_failure.in_a_row, reported.compaction_failure.last_at) == (1, clock.time)
    assert reported.compaction_failure.error.startswith("no room")
    assert run_next_merge(site, "worker")
    clock.move(seconds=2)
    assert merges(site, table)
    assert not merges(site, table), "it is tried again"
    assert run_next_compaction(site, "compactor")
    assert stats(site, table).compaction_failure is None
    assert run_next_merge(site, "worker")


def test_their_compaction_comes_before_those_that_nobody_waits_for(site: MergeSite) -> None:
    calm = create_table(site.database, SUM, name="calm")
    assert merges(site, calm)
    request_compaction(site.database, calm)
    table = create_table(site.database, OPTIONS, name="stopped")
    fill(site, table)
    assert claim(site, "compactor", TaskKind.COMPACTION).claimed.table.id == table.id


def test_a_compaction_that_merges_waited_for_in_vain_is_not_put_off_for_newer_ones(
    site: MergeSite, table: Table, clock: SetClock
) -> None:
    clock.move(seconds=301)
    fill(site, create_table(site.database, OPTIONS, name="stopped"))
    assert claim(site, "compactor", TaskKind.COMPACTION).claimed.table.id == table.id


def test_a_merge_that_was_begun_before_goes_on(site: MergeSite) -> None:
    table = create_table(site.database, SUM)
    for _ in range(2):
        assert merges(site, table)
    ask_for_merge(site, table)
    lease = claim(site, "worker", TaskKind.MERGE)
    assert lease is not None
    few = {"num-sorted-run.compaction-trigger": "2", "num-sorted-run.stop-trigger": "2"}
    set_options(site.database, table, few)
    request_compaction(site.database, table)
    assert stats(site, table).merges_wait is not None
    lease.hand_back()
    assert claim(site, "worker", TaskKind.MERGE).claimed.task.id == lease.claimed.task.id


def test_why_they_wait_is_reported(site: MergeSite, table: Table, images: Images, clock: SetClock) -> None:
    asked = clock.time
    clock.move(seconds=10)
    waits = stats(site, table).merges_wait
    assert (waits.runs, waits.trigger, waits.since) == (3, 3, asked)
    with site.database.reading() as repository:
        assert repository.tasks.get(table.id, waits.compaction_id).requested_at == asked
        assert [one.reason for one in overdue_tables(repository, spark_answers=True)] == [OverdueReason.COMPACTION]
    assert metric(site, images) == 1
    assert run_next_compaction(site, "compactor")
    assert stats(site, table).merges_wait is None
    assert metric(site, images) == 0


def metric(site: MergeSite, images: Images) -> float:
    reported = scrape_readings(site.database, site.warehouse, images, 10)
    return next(one.number for one in reported if one.metric is Measured.WAITING_TABLES)
