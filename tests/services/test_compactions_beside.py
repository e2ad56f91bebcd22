"""Small compactions pass one that takes long."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from app.core.table.history import Table, TaskKind
from app.services.compactions import ask_for_compaction
from app.services.executor import MergeSite
from app.services.giving_way import LONG_SECONDS, GivingWay
from app.services.small_compactions import is_small_table
from tests.services.builders import SUM, create_table, post
from tests.services.clocks import Seconds, SetClock, clock, database
from tests.services.executor import PythonExecutor
from tests.services.test_altered_tables import alter
from tests.services.test_small_compactions import OPTIONS, merge, table_of_two_runs
from tests.services.test_worker import succeeded, until, working

__all__ = ["clock", "database"]
TOLD = OPTIONS | {"changelog-producer": "full-compaction"}  # the executor's, however few its rows are

TABLES = {"few": OPTIONS, "told": TOLD, "wide": OPTIONS}


@pytest.fixture
def small(site: MergeSite) -> MergeSite:
    """A worker that compacts a few rows by itself, and merges one record."""
    return replace(site, small_merge_records=1)


class Gated(PythonExecutor):
    """Its compactions go on when they are let."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.gate = threading.Event(), threading.Event()

    def compact(self, *args: Any) -> None:
        self.begun.set()
        assert self.gate.wait(60)
        super().compact(*args)


def ask(site: MergeSite, table: Table) -> None:
    with site.database.transaction() as repository:
        ask_for_compaction(repository, table.id)


@pytest.mark.slow(reason="a worker looks for work in its own time")
def test_small_ones_of_other_tables_do_not_wait_until_a_long_one_is_over(small: MergeSite) -> None:
    large, other, *others = [table_of_two_runs(small, TOLD if n < 2 else OPTIONS, f"t{n}") for n in range(6)]
    executor = Gated()
    with working(replace(small, executor=executor), poll_seconds=0.02):
        ask(small, large)
        assert executor.begun.wait(20)
        for table in (other, *others):
            ask(small, table)
        assert until(lambda: all(succeeded(small, table, TaskKind.COMPACTION) for table in others))
        assert not any(succeeded(small, table, TaskKind.COMPACTION) for table in (large, other))
        executor.gate.set()
        assert until(lambda: all(succeeded(small, table, TaskKind.COMPACTION) for table in (large, other)))
    assert executor.compactions == 2


def test_none_passes_a_short_one_nor_while_merges_are_overdue(site: MergeSite, clock: SetClock) -> None:
    seconds = Seconds()
    way = GivingWay(seconds)
    table = table_of_two_runs(site, SUM | {"merge.max-staleness": "1 h"})
    late = create_table(site.database, SUM, "late")
    with way.compacting():
        seconds.time += LONG_SECONDS + 0.1
        assert not way.may_begin_beside(site.database)  # there is none
        ask(site, table)
        assert way.may_begin_beside(site.database)
        post(site.database, site.warehouse, {"id": 1, "n": 1}, name=late.name)
        clock.move(seconds=5)
        assert not way.may_begin_beside(site.database)
        merge(site, late)
        assert way.may_begin_beside(site.database)
    assert not way.may_begin_beside(site.database)
    with way.compacting():
        seconds.time += LONG_SECONDS - 0.1
        assert not way.may_begin_beside(site.database)


def test_a_table_is_small_if_whatever_is_compacted_of_it_is_done_in_the_worker(small: MergeSite) -> None:
    few, told, altered = [table_of_two_runs(small, options, name) for name, options in TABLES.items()]
    with small.database.reading() as repository:
        assert [is_small_table(repository, table.id) for table in (few, told, altered)] == [True, False, True]
    alter(small, altered, (1, "m"), options={"merge-engine": "aggregation", "fields.m.aggregate-function": "sum"})
    with small.database.reading() as repository:
        assert not is_small_table(repository, altered.id)
