"""Records are late against all that their key had before: what removed its row, and sequences of several fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from app.catalog.database import CatalogDatabase
from app.services.shared.executor import MergeSite
from tests.services.builders import compact
from tests.services.upkeep.test_late_counting import GROUPS, START, TOLD, count, create, report, send

REMOVED: Mapping[str, Mapping[str, str]] = {
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "aggregation": {"merge-engine": "aggregation", "aggregation.remove-record-on-delete": "true"},
}


@pytest.mark.parametrize("engine", REMOVED)
def test_records_are_late_that_sort_before_the_removal_of_their_row(
    database: CatalogDatabase, site: MergeSite, engine: str
) -> None:
    table = create(database, {**REMOVED[engine], "sequence.field": "s"})
    for record in ({"s": 5, "a": "x"}, {"s": 9, "_kind": "-D"}, {"s": 7, "a": "y"}, {"s": 8, "a": "z"}):
        send(database, site, "", {"id": 1, **record})
        assert count(site, table)
        compact(site, table)
    [one] = report(database, table).lanes[0].senders
    assert (one.counts.against_older, one.counts.largest) == (2, 2.0)


def test_only_records_that_name_a_group_count_in_its_lane_after_a_removal(
    database: CatalogDatabase, site: MergeSite
) -> None:
    removing = {"partial-update.remove-record-on-sequence-group": "t", "sequence.field": "s"}
    table = create(database, {**GROUPS, **TOLD, **removing})
    day = "2026-03-01"
    for record in ({"u": 5}, {"u": 2, "v": day}, {"t": START.isoformat(), "_kind": "-D"}, {"u": 3, "v": day}):
        send(database, site, "", {"id": 1, **record})
        assert count(site, table)
        compact(site, table)
    send(database, site, "", {"id": 1, "u": 1, "v": day})
    assert count(site, table)
    lane = next(lane for lane in report(database, table).lanes if lane.sequence == ("u", "v"))
    assert [(sender.counts.records, sender.counts.against_older, sender.counts.largest) for sender in lane.senders] == [
        (3, 1, 2.0)
    ]


def test_sequences_of_several_fields_are_those_of_one_record(database: CatalogDatabase, site: MergeSite) -> None:
    table = create(database, {"merge-engine": "partial-update", "sequence.field": "s,u"})
    for record in ({"s": 5}, {"s": 3, "u": 9}, {"s": 5, "u": 7}):
        send(database, site, "", {"id": 1, **record})
        assert count(site, table)
        compact(site, table)
    [one] = report(database, table).lanes[0].senders
    assert (one.counts.records, one.counts.late, one.counts.largest) == (3, 1, 2.0)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_retracts_that_change_no_column_of_a_lane_make_no_record_late_in_it(
    database: CatalogDatabase, site: MergeSite, cut: int
) -> None:
    table = create(database, {**GROUPS, "sequence.field": "s"})
    records: list[dict[str, Any]] = [
        {"id": 1, "s": 2, "a": "x"},
        {"id": 1, "s": 5, "u": 7, "v": "2026-03-01", "_kind": "-D"},
        {"id": 1, "s": 3, "a": "y"},
        {"id": 1, "s": 1, "a": "z"},
    ]
    for batch in (records[:cut], records[cut:]):
        send(database, site, "", *batch)
        assert count(site, table)
    [sender] = next(lane for lane in report(database, table).lanes if lane.sequence == ("s",)).senders
    assert (sender.counts.records, sender.counts.late, sender.counts.largest) == (3, 1, 2.0)
