"""A compaction that fails costs no rows, is tried again by itself, and waits longer each time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.core.table.history import Failures, Table
from app.services.merging.compactions import request_failed_compactions
from app.services.rows.lookups import Images
from app.services.shared.executor import MergeSite
from tests.services.builders import (
    SUM,
    create_table,
    merge,
    request_compaction,
    run_next_compaction,
    snapshot_of,
    totals,
)
from tests.services.clocks import SetClock, clock, database
from tests.services.executor import BrokenCompaction

__all__ = ["clock", "database"]

ONE = {"id": 1, "n": 1}


@pytest.fixture
def broken(site: MergeSite) -> MergeSite:
    return replace(site, executor=BrokenCompaction())


@pytest.fixture
def table(site: MergeSite) -> Table:
    """A table whose two runs are due."""
    table = create_table(site.database, SUM | {"num-sorted-run.compaction-trigger": "2"})
    for _ in range(2):
        merge(site, table, ONE)
    return table


@pytest.mark.slow(reason="merges many times")
def test_merges_ask_for_it_again_but_not_each_of_them(
    site: MergeSite, broken: MergeSite, table: Table, clock: SetClock, images: Images
) -> None:
    tried = []
    for second in range(16):
        merge(site, table, ONE)
        if run_next_compaction(broken, "compactor"):
            tried.append(second)
        clock.move(seconds=1)
    assert tried == [0, 1, 3, 7, 15]
    clock.move(seconds=16)
    merge(site, table, ONE)
    assert run_next_compaction(site, "compactor")
    assert len(snapshot_of(site.database, table).runs) == 1
    assert totals(site.database, images, table, [1]) == [19]
    merge(site, table, ONE)
    assert run_next_compaction(broken, "compactor"), "after one that succeeded the next is not waited for"


def test_a_table_that_nobody_writes_to_is_compacted_all_the_same(
    site: MergeSite, broken: MergeSite, table: Table, clock: SetClock
) -> None:
    assert run_next_compaction(broken, "compactor")
    request_failed_compactions(site.database)
    assert not run_next_compaction(site, "compactor"), "it is too early"
    clock.move(seconds=1)
    request_failed_compactions(site.database)
    assert run_next_compaction(site, "compactor")
    clock.move(hours=1)
    request_failed_compactions(site.database)
    assert not run_next_compaction(site, "compactor"), "nothing has failed since"


def test_what_somebody_asks_for_waits_for_nothing(site: MergeSite, broken: MergeSite, table: Table) -> None:
    assert run_next_compaction(broken, "compactor")
    request_compaction(site.database, table)
    assert run_next_compaction(site, "compactor")


def test_only_failures_since_the_last_success_count_and_those_of_compactions_alone(
    site: MergeSite, broken: MergeSite, table: Table, clock: SetClock
) -> None:
    other = create_table(site.database, SUM, name="other")
    for executor in (broken, site, broken, broken):
        request_compaction(site.database, table)
        clock.move(seconds=1)
        assert run_next_compaction(executor, "compactor")
        merge(site, table, ONE)
    cancelled = request_compaction(site.database, table)
    with site.database.transaction() as repository:
        repository.tasks.request_cancel(table.id, cancelled.id)
        assert repository.tasks.failed_compactions() == {table.id: Failures(2, clock.time)}
        assert repository.tasks.failed_compactions([other.id]) == {}
