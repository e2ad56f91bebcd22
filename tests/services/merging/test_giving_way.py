"""Compactions wait while merges are overdue for there are too many of them, and for so long only."""

from __future__ import annotations

from app.services.merging.compactions import ask_for_compaction
from app.services.merging.giving_way import MOST_SECONDS, GivingWay
from app.services.shared.executor import MergeSite
from tests.services.builders import SUM, create_table, merge, merge_staged, post
from tests.services.clocks import Seconds, SetClock, clock, database

__all__ = ["clock", "database"]


def test_nothing_is_put_off_while_merges_are_in_time() -> None:
    assert not GivingWay(Seconds()).gives_way(False)


def test_the_first_is_put_off_for_a_while_and_then_no_more() -> None:
    seconds = Seconds()
    way = GivingWay(seconds)
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
    with site.database.transaction() as repository:
        ask_for_compaction(repository, table.id)
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
