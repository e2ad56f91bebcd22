"""Tables that miss their ``merge.max-staleness``: told with the reason, and in the log once when it begins and ends.
Compactions give way to them, for so long only.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from app.catalog.database import CatalogDatabase
from app.core.table.history import TaskKind
from app.core.table.upkeep.overdue import OverdueReason
from app.services.merging.giving_way import MOST_SECONDS, GivingWay
from app.services.merging.merges import request_merge
from app.services.merging.overdue import ENDED_SECONDS, LOOK_SECONDS, OverdueWatch, overdue_tables
from app.services.operating.scrapes import scrape_readings
from app.services.shared.executor import MergeSite
from app.storage.images import Images
from app.telemetry.entries import Measured
from tests.services.builders import (
    SUM,
    claim,
    create_table,
    merge,
    merge_staged,
    post,
    request_compaction,
    run_next_merge,
)
from tests.services.clocks import Seconds, SetClock, clock, database
from tests.services.executor import BrokenExecutor

__all__ = ["clock", "database"]


def late(database: CatalogDatabase) -> list[tuple[str, OverdueReason]]:
    with database.reading() as repository:
        return [(table.table.name, table.reason) for table in overdue_tables(repository, spark_answers=True)]


def test_tables_are_reported_with_why_they_are_overdue(site: MergeSite, clock: SetClock) -> None:
    for name in ("waits", "merging", "fails", "patient"):
        table = create_table(site.database, SUM | {"merge.max-staleness": "1 h" if name == "patient" else "1 s"}, name)
        post(site.database, site.warehouse, {"id": 1, "n": 1}, name=name)
        if name == "waits":
            continue
        request_merge(site.database, table.id)
        if name == "fails":
            assert run_next_merge(replace(site, executor=BrokenExecutor(RuntimeError("no luck"))), "worker")
        elif name == "merging":
            assert claim(site, "worker", TaskKind.MERGE) is not None
    assert late(site.database) == []
    clock.move(seconds=2.5)
    assert sorted(late(site.database)) == [
        ("fails", OverdueReason.FAILS),
        ("merging", OverdueReason.MERGING),
        ("waits", OverdueReason.WAITING),
    ]
    with site.database.reading() as repository:
        [one] = overdue_tables(repository, late_id(site, "waits"), spark_answers=True)
        assert one.by.total_seconds() == 1.5


def late_id(site: MergeSite, name: str) -> str:
    with site.database.reading() as repository:
        return repository.tables.get("shop", name).id


def test_metrics_count_overdue_tables_by_reason(site: MergeSite, clock: SetClock, images: Images) -> None:
    create_table(site.database)
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    clock.move(seconds=60)
    reported = scrape_readings(site.database, site.warehouse, images, 10)
    counts = {one.values[0]: one.number for one in reported if one.metric is Measured.OVERDUE_TABLES}
    assert counts.keys() == set(OverdueReason)
    assert sum(counts.values()) == 1


def test_the_log_tells_once_that_a_table_is_overdue_and_once_that_it_is_not(
    site: MergeSite, clock: SetClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "app.services.merging.overdue")
    seconds = Seconds()
    watch = OverdueWatch(site.database, seconds)

    def look(times: int = 1) -> list[str]:
        for _ in range(times):
            seconds.time += LOOK_SECONDS
            watch.look()
        said = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return said

    table = create_table(site.database)
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    assert look() == []
    clock.move(seconds=30)
    assert look() == []  # once may be chance
    [begun] = look()
    assert begun.startswith("shop.wide is overdue: its oldest batch waits 29 s longer than merge.max-staleness: ")
    clock.move(seconds=30)
    assert look(20) == []
    merge_staged(site.database, site.warehouse, table.id)
    assert look(int(ENDED_SECONDS / LOOK_SECONDS) - 1) == []
    assert look() == ["shop.wide is merged in time again: it was overdue by up to 59 s"]
    assert look(20) == []


def test_the_first_is_put_off_for_a_while_and_then_no_more() -> None:
    seconds = Seconds()
    way = GivingWay(seconds)
    assert not way.gives_way(False), "while merges are in time"
    assert way.gives_way(True)
    seconds.time += MOST_SECONDS - 1
    assert way.gives_way(True)
    assert not way.gives_way(False)
    seconds.time += 1
    assert not way.gives_way(True)


def test_compactions_have_half_of_the_time_while_merges_wait() -> None:
    seconds = Seconds()
    way = GivingWay(seconds)
    for took in (2.0, 0.5, 100.0):
        with way.compacting():
            seconds.time += took
        assert way.gives_way(True)
        seconds.time += min(took, MOST_SECONDS) - 0.1
        assert way.gives_way(True)
        seconds.time += 0.2
        assert not way.gives_way(True)


def test_a_compaction_gives_way_to_overdue_merges_alone(site: MergeSite, clock: SetClock) -> None:
    table = create_table(site.database, SUM | {"merge.max-staleness": "1 h"})
    other = create_table(site.database, SUM, "other")
    assert not GivingWay(Seconds()).may_begin(site.database)  # there is none
    for _ in range(2):
        merge(site, table, {"id": 1, "n": 1})
    request_compaction(site.database, table)
    assert GivingWay(Seconds()).may_begin(site.database)
    post(site.database, site.warehouse, {"id": 1, "n": 1}, name="other")
    clock.move(seconds=1.5)
    assert GivingWay(Seconds()).may_begin(site.database)
    clock.move(seconds=1)
    seconds = Seconds()
    way = GivingWay(seconds)
    assert not way.may_begin(site.database)
    seconds.time += MOST_SECONDS
    assert way.may_begin(site.database)
    merge_staged(site.database, site.warehouse, other.id)
    assert GivingWay(Seconds()).may_begin(site.database)
