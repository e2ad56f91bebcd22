"""Late records as they are counted are those that a walk over the whole history finds, one record after the other."""

from __future__ import annotations

import itertools
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from weakref import ref

import pytest

from app.catalog.batches.lateness import CountedMerge
from app.catalog.database import CatalogDatabase
from app.core.plan.merging.fold import combine, lift, visible_row
from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.bounds import Bounds
from app.core.table.history import Table
from app.core.table.records import Record, RowKind
from app.core.table.schema import TableSchema
from app.files.layout import staging_file
from app.kernel.tasks import Work
from app.services.batches.batches import Upload, accept_batch
from app.services.bodies.formats import JSON
from app.services.explaining.history import move_history
from app.services.explaining.lateness import LateReport, late_report
from app.services.shared.executor import MergeSite
from app.services.tables.tables import alter_table
from app.services.upkeep.late_counting import MOST_SENDERS, OTHERS, count_late_records, first_batches
from tests.catalog.builders import CATALOGS
from tests.services.builders import QUIET, committed, compact, create_table, merge, merge_staged
from tests.services.executor import PythonExecutor

NAME = ("shop", "wide")
START = datetime(2026, 3, 1)  # a TIMESTAMP has no zone
GROUPS = {
    "merge-engine": "partial-update",
    "fields.t.sequence-group": "a,b",
    "fields.u,v.sequence-group": "c,d,e",
    "fields.d.aggregate-function": "sum",
    "fields.e.aggregate-function": "last_non_null_value",
}
TOLD = {"record.absent-columns": "unchanged"}
TABLES: Mapping[str, tuple[Mapping[str, str], Sequence[tuple[str, ...]]]] = {
    "groups": (GROUPS, [("t",), ("u", "v")]),
    "groups that tell what they name": ({**GROUPS, **TOLD}, [("t",), ("u", "v")]),
    "groups and a sequence": ({**GROUPS, "sequence.field": "s"}, [("t",), ("u", "v"), ("s",)]),
    "deduplicate": ({"sequence.field": "s,t"}, [("s", "t")]),
    "deduplicate, descending": ({"sequence.field": "s", "sequence.field.sort-order": "descending"}, [("s",)]),
    "aggregation": (
        {
            "merge-engine": "aggregation",
            "sequence.field": "t",
            "fields.a.aggregate-function": "last_value",
            "fields.b.aggregate-function": "first_non_null_value",
            "fields.c.aggregate-function": "max",
            "fields.d.aggregate-function": "sum",
            "fields.e.aggregate-function": "listagg",
        },
        [("t",)],
    ),
}
COLUMNS = (
    ("id", "BIGINT"),
    ("t", "TIMESTAMP(3)"),
    ("s", "INT"),
    ("u", "INT"),
    ("v", "DATE"),
    ("a", "STRING"),
    ("b", "BIGINT"),
    ("c", "BIGINT"),
    ("d", "BIGINT"),
    ("e", "STRING"),
)


def create(database: CatalogDatabase, options: Mapping[str, str]) -> Table:
    return create_table(database, {**options, **QUIET}, columns=COLUMNS)


def send(database: CatalogDatabase, site: MergeSite, sender: str, *records: Mapping[str, Any]) -> None:
    upload = Upload(json.dumps({"records": records}).encode(), JSON, sender=sender)
    accept_batch(database, site.warehouse, *NAME, upload, Bounds(10_000))


def count(site: MergeSite, table: Table, **most: int) -> int:
    """Merge what is staged and count."""
    return count_late_records(site, [merge_staged(site.database, site.warehouse, table.id)], **most)


def report(database: CatalogDatabase, table: Table, since: datetime | None = None) -> LateReport:
    with database.reading() as repository:
        return late_report(repository, repository.tables.find(table.id) or table, since)


@dataclass
class Walk:
    """The whole history of a table, record by record: what of it is late, by lane and sender."""

    schema: TableSchema
    lanes: Sequence[tuple[str, ...]]
    columns: Mapping[tuple[str, ...], Sequence[str]]
    descending: bool
    states: dict[int, Any] = field(default_factory=dict)
    seen: dict[Any, list[tuple[Any, Any, int]]] = field(default_factory=lambda: defaultdict(list))
    found: dict[Any, dict[str, Any]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    arrivals: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def take(self, sender: str, sent: Mapping[str, Any], merge: int) -> None:
        """One more record, of the merge of that number."""
        plan = compile_plan(self.schema)
        values = {
            column.name: column.type.with_nullable(True).decoder(sent.get(column.name))
            for column in plan.schema.columns
        }
        named = frozenset(sent) if self.schema.absent_unchanged else None
        record = Record(RowKind.INSERT, values, next(self.arrivals), named)
        before = self.states.get(sent["id"])
        lifted = lift(plan, record)
        after = lifted if before is None else combine(plan, before, lifted)
        self.states[sent["id"]] = after
        rows = [visible_row(plan, state) if state else None for state in (before, after)]
        for lane in self.lanes:
            self._in_lane(lane, sender, sent["id"], values, merge, rows)

    def _in_lane(self, lane: Any, sender: str, key: int, values: Any, merge: int, rows: Sequence[Any]) -> None:
        grouped = lane[0] in ("t", "u") and "partial-update" in str(self.schema.options)
        if grouped and all(values[name] is None for name in lane):
            return
        order = [*lane, *(["s"] if grouped and "sequence.field" in self.schema.options else [])]
        place = tuple(self._rank(values[name]) for name in order)
        found, seen = self.found[lane, sender], self.seen[lane, key]
        found["records"] += 1
        higher = max((one for one in seen if one[0] > place), default=None, key=lambda one: one[0])
        if higher is not None:
            found["late"] += 1
            found["in_merge"] += any(one[0] > place and one[2] == merge for one in seen)
            changed = rows[0] is None or any(rows[0][name] != rows[1][name] for name in self.columns[lane])
            found["changed_nothing"] += not changed
            amount = _amount(higher[1], values[lane[0]])
            found["unmeasured"] += amount is None
            found["largest"] = max(found["largest"], amount or 0.0)
        seen.append((place, values[lane[0]], merge))

    def _rank(self, value: Any) -> tuple[Any, ...]:
        return (0,) if value is None else (1, -value if self.descending else value)


def _amount(one: Any, other: Any) -> float | None:
    if one is None or other is None:
        return None
    apart = one - other
    return abs(apart.total_seconds() if isinstance(apart, timedelta) else float(apart))


def drawn(draw: random.Random, numbers: Iterator[int], lanes: Sequence[Sequence[str]], names: bool) -> dict[str, Any]:
    """A record with values that no other one has, but for the sequences of ``lanes``."""
    number = next(numbers)
    values: dict[str, Any] = {
        "t": draw.choice([None, (START + timedelta(seconds=draw.choice([0, 1, 5, 90, 7200]))).isoformat()]),
        "s": draw.choice([None, 1, 2, 3, 50, 5000]),
        "u": draw.choice([None, 1, 2, 3]),
        "v": draw.choice([None, "2026-03-01", "2026-03-04"]),
        **{name: f"{name}{number}" for name in ("a", "e")},
        **dict.fromkeys(("b", "c", "d"), number),
    }
    values["u"], values["v"] = (values["u"], values["v"]) if values["u"] else (None, None)
    sequences = {name for lane in lanes for name in lane}
    gone = [name for name in values if draw.random() < 0.25 or (name in "tsuv" and name not in sequences)]
    kept = {name: value for name, value in values.items() if name not in gone and (value is not None or not names)}
    if names and ("u" in kept) != ("v" in kept):
        kept.pop("u", None), kept.pop("v", None)
    return {"id": draw.randrange(6), **kept}


@pytest.mark.slow(reason="plays a history of every kind of table")
@pytest.mark.parametrize("kind", TABLES)
def test_late_records_are_those_that_a_walk_over_the_history_finds(site: MergeSite, kind: str) -> None:
    options, lanes = TABLES[kind]
    table = create(site.database, options)
    draw, numbers = random.Random(kind), itertools.count(1)
    reported = {tuple(lane.sequence): lane for lane in report(site.database, table).lanes}
    assert reported.keys() == set(lanes)
    columns = {lane: reported[lane].columns for lane in lanes}
    walk = Walk(table.schema, lanes, columns, "descending" in str(options))
    for number in range(8):
        for sender in ("till", "shop", "till"):
            sent = [
                drawn(draw, numbers, lanes, "record.absent-columns" in options) for _ in range(draw.randrange(1, 9))
            ]
            send(site.database, site, sender, *sent)
            for record in sent:
                walk.take(sender, record, number)
        assert count(site, table)
        if number in (3, 6):
            compact(site, table)
    found = report(site.database, table)
    assert (found.merges, found.counted, found.exact) == (8, 8, True)
    for lane in found.lanes:
        for one in lane.senders:
            expected = walk.found[tuple(lane.sequence), one.sender]
            counts = one.counts
            told_of = {
                "records": counts.records,
                "late": counts.late,
                "in_merge": counts.in_merge,
                "changed_nothing": counts.changed_nothing,
                "unmeasured": counts.unmeasured,
                "largest": counts.largest or 0.0,
            }
            assert told_of == {name: expected[name] for name in told_of}, (lane.sequence, one.sender)
            assert sum(counts.steps) + counts.unmeasured == counts.late
            assert counts.late > counts.in_merge > 0
            assert (counts.changed_nothing or 0) > 0


def test_how_late_is_counted_by_steps_and_the_horizon(database: CatalogDatabase, site: MergeSite) -> None:
    options = {
        "merge-engine": "aggregation",
        "sequence.field": "t",
        "fields.e.aggregate-function": "listagg",
        "sequence.late-horizon": "1 min",
    }
    table = create(database, options)
    ages = [0, 0, 1, 2, 60, 61, 700_000]
    times = [(START - timedelta(seconds=age)).isoformat() for age in ages]
    send(database, site, "", *({"id": 1, "t": time, "e": "x"} for time in times), {"id": 1, "e": "x"})
    assert count(site, table)
    [lane] = report(database, table).lanes
    assert (lane.measure, lane.horizon) == ("seconds", "1 min")
    [one] = lane.senders
    assert (one.sender, one.counts.late, one.counts.unmeasured, one.counts.too_late) == ("", 6, 1, 2)
    assert dict(zip(lane.steps, one.counts.steps, strict=False)) == {
        1: 1, 10: 1, 60: 1, 600: 1, 3_600: 0, 21_600: 0, 86_400: 0, 604_800: 0
    }  # fmt: skip
    assert (one.counts.steps[-1], one.counts.largest) == (1, 700_000.0)


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_columns_that_were_renamed_widened_and_added_meanwhile_are_counted_on(site: MergeSite) -> None:
    table = create(site.database, {"merge-engine": "partial-update", "fields.s.sequence-group": "a", **TOLD})
    send(site.database, site, "till", {"id": 1, "s": 5, "a": "x"})
    assert count(site, table)
    changes = [
        {"action": "renameColumn", "fieldNames": ["s"], "newName": "z"},
        {"action": "updateColumnType", "fieldNames": ["z"], "newDataType": "BIGINT"},
        {"action": "addColumn", "fieldNames": ["o"], "dataType": "STRING"},
    ]
    alter_table(site.database, NAME, changes)
    send(site.database, site, "till", {"id": 1, "z": 4, "a": "y"}, {"id": 2, "z": 1, "o": "w"})
    assert count(site, table)
    [lane] = report(site.database, table).lanes
    assert (lane.sequence, lane.measure) == (("z",), "number")
    [sender] = lane.senders
    assert (sender.counts.records, sender.counts.against_older, sender.counts.largest) == (3, 1, 1.0)


def test_rows_that_can_be_removed_leave_open_what_late_records_changed(
    database: CatalogDatabase, site: MergeSite
) -> None:
    table = create(database, {**GROUPS, "partial-update.remove-record-on-sequence-group": "t"})
    send(database, site, "", *({"id": 1, "t": (START - timedelta(hours=n)).isoformat(), "a": "x"} for n in range(3)))
    assert count(site, table)
    lane = next(lane for lane in report(database, table).lanes if lane.sequence == ("t",))
    assert [(sender.counts.late, sender.counts.changed_nothing) for sender in lane.senders] == [(2, None)]


@pytest.mark.slow(reason="compares a large table")
def test_of_large_tables_a_share_of_the_keys_is_counted(
    database: CatalogDatabase, site: MergeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.kernel.plan_tasks.ROWS_PER_TASK", 500)
    table = create(database, {"sequence.field": "s"})
    send(database, site, "", *({"id": key, "s": 5} for key in range(2_000)))
    assert count(site, table)
    send(database, site, "", *({"id": key, "s": key % 2 * 9} for key in range(2_000)))
    assert count(site, table, most_older_rows=500)
    found = report(database, table)
    [one] = found.lanes[0].senders
    assert (found.exact, found.records) == (False, 4_000)
    assert 3_600 < one.counts.records < 4_400
    assert 700 < one.counts.against_older < 1_300
    assert one.counts.changed_nothing == one.counts.late == one.counts.against_older


def test_a_table_without_sequences_has_no_lanes(database: CatalogDatabase, site: MergeSite) -> None:
    table = create(database, {})
    send(database, site, "", {"id": 1})
    assert not count(site, table)
    assert list(report(database, table).lanes) == []


def test_merges_of_several_tables_share_a_job_and_one_that_cannot_be_counted_stops_no_other(
    database: CatalogDatabase, site: MergeSite
) -> None:
    tables = [create_table(database, {"sequence.field": "n", **QUIET}, name=name) for name in ("a", "b", "c")]
    merges = [merge(site, table, {"id": 1, "n": 2}, {"id": 1, "n": 1}) for table in tables]
    with database.reading() as repository:
        [batch] = repository.batches.of_merge(merges[1].id)
    site.warehouse.filesystem.delete_file(site.warehouse.path(*staging_file(tables[1].id, batch.file)))
    executor = PythonExecutor()
    assert count_late_records(replace(site, executor=executor), merges) == 2
    assert executor.last is not None
    assert [task.work for task in executor.last.tasks] == [Work.LATE] * 3
    assert [report(database, table).counted for table in tables] == [1, 0, 1]


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_what_was_counted_is_reported_since_a_time_and_forgotten_with_its_merge(site: MergeSite) -> None:
    table = create(site.database, {"sequence.field": "s", "history.time-retained": "0"})
    for number in (2, 1):
        send(site.database, site, "", {"id": 1, "s": number})
        assert count(site, table)
    with site.database.reading() as repository:
        merges = repository.tasks.page(table.id, limit=2)
    first, last = sorted(one.finished_at for one in merges if one.finished_at)
    assert [report(site.database, table, since).counted for since in (None, first, last)] == [2, 2, 1]
    assert report(site.database, table, last + timedelta(seconds=1)).since is None
    with site.database.transaction() as repository:
        move_history(repository, table, last + timedelta(days=1))
        repository.batches.forget(table.id, last + timedelta(days=1), last + timedelta(days=1), 10)
        assert repository.tasks.forget(table.id, last + timedelta(days=1), 10) == 1
    assert report(site.database, table).counted == 1
    assert not count_late_records(site, merges[1:])
    assert committed(site.database, table)


class Summed(int):
    """A number of records that counts how often one is added to a sum."""

    sums = 0

    def __add__(self, other: int) -> Summed:
        Summed.sums += 1
        return Summed(int(self) + int(other))

    __radd__ = __add__


def test_the_first_batches_are_counted_and_none_behind_one_that_is_left_out(site: MergeSite) -> None:
    table = create(site.database, {"sequence.field": "s"})
    send(site.database, site, "", {"id": 1, "s": 1})
    merge = merge_staged(site.database, site.warehouse, table.id)
    with site.database.reading() as repository:
        [batch] = repository.batches.of_merge(merge.id)
    records = [3, 0, 4, 9, 1, 1]
    batches = [replace(batch, number=number, records=Summed(one)) for number, one in enumerate(records)]
    assert [batch.number for batch in first_batches(batches, 15)] == [0, 2]
    assert [batch.number for batch in first_batches(batches, 16)] == [0, 2, 3]
    assert [batch.number for batch in first_batches(batches, 99)] == [0, 2, 3, 4, 5]
    assert first_batches(batches, 2) == []
    Summed.sums = 0
    first_batches([replace(batch, records=Summed(1))] * 500, 499)
    assert Summed.sums <= 500


def test_of_many_senders_those_are_distinguished_that_sent_the_most(database: CatalogDatabase, site: MergeSite) -> None:
    table = create(database, {"sequence.field": "s"})
    for number in range(MOST_SENDERS + 5):
        records = [{"id": number, "s": 9 - one} for one in range(3 if number % 5 == 0 else 2)]
        send(database, site, f"sender-{number:02}", *records)
    assert count(site, table)
    send(database, site, "sender-00", {"id": 0, "s": 0})
    assert count(site, table)
    [lane] = report(database, table).lanes
    reported = {sender.sender: (sender.counts.records, sender.counts.late) for sender in lane.senders}
    assert len(reported) == MOST_SENDERS
    assert [reported[f"sender-{number:02}"] for number in (0, 5, 20, 1)] == [(4, 3), (3, 2), (3, 2), (2, 1)]
    assert reported[OTHERS] == (12, 6)
    assert sum(records for records, _ in reported.values()) == report(database, table).records


def test_merges_are_read_while_their_counts_are_added(database: CatalogDatabase, site: MergeSite) -> None:
    table = create(database, {"sequence.field": "s"})
    for number in (3, 2, 1):
        send(database, site, "", {"id": 1, "s": number})
        assert count(site, table)
    there: list[ref[CountedMerge]] = []
    with database.reading() as repository:
        for merge in repository.late_merges.since(table.id, None, 2):
            assert [one() for one in there] == [None] * len(there)  # nobody holds those of before
            there.append(ref(merge))
    assert len(there) == 2
    assert report(database, table).merges == 3
