"""The ledger sees each way in which a batch can be lost, doubled or half."""

from __future__ import annotations

from random import Random

import pytest

from lab.faults.ledger import Ledger, Listed, Outcome, Sent
from lab.faults.readers import torn
from lab.faults.tables import OWN, TABLES
from tests.oracle import Change, fold


def filled(name: str, batches: int = 30) -> Ledger:
    """A ledger whose batches are all acknowledged."""
    ledger, random = Ledger(TABLES[name].case), Random(7)
    for serial in range(1, batches + 1):
        ledger.accept(ledger.send(f"k{serial}", TABLES[name].draw(random, serial)), serial)
    return ledger


def listed(sent: list[Sent]) -> list[Listed]:
    return [Listed(f"id-{one.key}", one.key, one.number, "merged", one.number) for one in sent]


def rows(ledger: Ledger, sent: list[Sent]) -> list[dict[str, object]]:
    """What a table would hold that has folded these batches in this order."""
    histories: dict[tuple[object, ...], list[Change]] = {}
    for one in sent:
        for record in one.records:
            key = tuple(record[name] for name in ledger.case.primary_key)
            values = {name: record.get(name) for name, _ in ledger.case.columns}
            histories.setdefault(key, []).append(Change(str(record.get("_kind", "+I")), values))
    folded = [fold(ledger.case, history) for history in histories.values()]
    return [row for row in folded if row is not None]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_with_each_batch_once_is_right(name: str) -> None:
    ledger = filled(name)
    every = list(ledger.sent.values())
    found = ledger.compare(listed(every), rows(ledger, every))
    assert (found.faults(), found.rows) == ([], len(rows(ledger, every)))


@pytest.mark.parametrize("name", TABLES)
def test_any_batch_that_is_lost_is_seen_in_rows_alone(name: str) -> None:
    ledger = filled(name)
    every = list(ledger.sent.values())
    for place in range(len(every)):
        assert ledger.compare(listed(every), rows(ledger, every[:place] + every[place + 1 :])).faults(), place


@pytest.mark.parametrize("name", ["summed", "rolled"])
def test_a_batch_that_is_folded_twice_is_reported_as_doubled(name: str) -> None:
    ledger = filled(name)
    every = list(ledger.sent.values())
    for place in range(len(every)):
        found = ledger.compare(listed(every), rows(ledger, [*every, every[place]]))
        assert (len(found.doubled) > 0, found.lost) == (True, [])


def test_a_late_repetition_is_seen_where_the_latest_wins() -> None:
    ledger = filled("latest")
    every = list(ledger.sent.values())
    assert sum(bool(ledger.compare(listed(every), rows(ledger, [*every, one])).faults()) for one in every) > 20


@pytest.mark.parametrize("name", TABLES)
def test_half_a_batch_is_seen(name: str) -> None:
    ledger = filled(name)
    every = list(ledger.sent.values())
    half = [Sent(one.key, one.records[:1], one.outcome, one.number) if one is every[3] else one for one in every]
    assert len(every[3].records) > 1
    assert ledger.compare(listed(every), rows(ledger, half)).faults()


def test_a_batch_that_was_acknowledged_and_is_not_listed_is_lost() -> None:
    ledger = filled("summed")
    every = list(ledger.sent.values())
    assert ledger.compare(listed(every[1:]), rows(ledger, every)).lost == ["batch 1 (k1) is not listed"]


def test_a_batch_that_is_not_merged_in_the_end_is_lost() -> None:
    ledger = filled("summed")
    every = list(ledger.sent.values())
    first, *others = listed(every)
    staged = Listed(first.id, first.key, first.number, "staged", None)
    assert ledger.compare([staged, *others], rows(ledger, every)).lost == [f"not merged: {staged}"]


def test_a_batch_without_an_answer_may_be_there_whole_or_not_at_all() -> None:
    ledger = filled("summed")
    every = list(ledger.sent.values())
    every[5].outcome, every[5].number = Outcome.NOTHING, 0
    without = every[:5] + every[6:]
    assert ledger.compare(listed(without), rows(ledger, without)).faults() == []
    there = [*listed(without), Listed("x", "k6", 6, "merged", 6)]
    assert ledger.compare(there, rows(ledger, every)).faults() == []
    assert ledger.compare(there, rows(ledger, without)).lost
    assert ledger.compare(listed(without), rows(ledger, every)).doubled


def test_a_body_that_was_cut_must_not_be_there() -> None:
    ledger = filled("summed")
    ledger.send("half", [], Outcome.CUT)
    every = list(ledger.sent.values())
    assert [one[:19] for one in ledger.compare(listed(every), rows(ledger, every)).wrong] == ["a body that was cut"]
    assert ledger.compare(listed(every[:-1]), rows(ledger, every)).faults() == []


def test_a_batch_that_was_withdrawn_must_not_be_there_and_no_other_may_be_gone() -> None:
    ledger = filled("summed")
    every = list(ledger.sent.values())
    deleted = Listed("id-k6", "k6", 6, "deleted", None)
    there, without = [deleted, *listed(every[:5] + every[6:])], every[:5] + every[6:]
    assert ledger.compare(there, rows(ledger, without)).lost == [f"no client has withdrawn {deleted}"]
    every[5].outcome = Outcome.NOTHING  # asked for, and not answered
    assert ledger.compare(there, rows(ledger, without)).faults() == []
    assert ledger.compare(listed(every), rows(ledger, every)).faults() == []
    every[5].outcome = Outcome.WITHDRAWN
    assert ledger.compare(there, rows(ledger, without)).faults() == []
    assert ledger.compare(there, rows(ledger, every)).doubled
    assert ledger.compare(listed(every), rows(ledger, every)).wrong


@pytest.mark.parametrize("name", [name for name, drawn in TABLES.items() if drawn.collected])
def test_a_scan_that_shows_half_a_batch_is_torn(name: str) -> None:
    ledger = filled(name)
    every = list(ledger.sent.values())
    whole, count = rows(ledger, every), TABLES[name].collected
    assert torn(whole, count) == []
    assert torn([row for row in whole if row["id"] != OWN + 4], count) == [
        f"serial 4 is in {count - 1} rows, not {count}"
    ]


def test_two_batches_of_one_key_and_two_numbers_of_one_batch_are_seen() -> None:
    ledger = filled("summed")
    every = list(ledger.sent.values())
    again = Listed("other", "k1", 31, "merged", 31)
    assert ledger.compare([*listed(every), again], rows(ledger, every)).doubled
    assert ledger.accept(every[0], 1) is None
    assert ledger.accept(every[0], 31) == "batch k1 was answered as number 1, then as 31"


def test_rows_that_a_rollback_hides_must_not_be_seen() -> None:
    ledger = filled("rolled")
    every = list(ledger.sent.values())
    ledger.rollbacks.append((10, 21))  # snapshot 21 shows what 10 showed
    every[20].outcome = Outcome.NOTHING  # no batch has snapshot 21
    there, kept = [*every[:20], *every[21:]], [*every[:10], *every[21:]]
    assert ledger.compare(listed(there), rows(ledger, kept)).faults() == []
    assert ledger.compare(listed(there), rows(ledger, there)).doubled


def test_a_rollback_to_a_hidden_snapshot_shows_its_rows_again() -> None:
    ledger = filled("rolled")
    every = list(ledger.sent.values())
    ledger.rollbacks += [(10, 21), (15, 25)]  # snapshots 21 and 25 are no batches' then
    kept = every[:15] + every[25:]
    there = [one for one in listed(every) if one.number not in {21, 25}]
    for number in (21, 25):
        every[number - 1].outcome = Outcome.NOTHING
    assert ledger.compare(there, rows(ledger, kept)).faults() == []
    assert ledger.compare(there, rows(ledger, every[:10] + every[25:])).faults()


def test_a_batch_that_was_tried_again_counts_as_come_then() -> None:
    ledger = filled("latest")
    every = list(ledger.sent.values())
    ledger.retried("k1", 31)
    later = [*every[1:], every[0]]
    assert ledger.compare(listed(later), rows(ledger, later)).faults() == []
    assert ledger.compare(listed(later), rows(ledger, every)).faults()
