"""What an owner is told about a changelog before it surprises."""

from __future__ import annotations

import pytest

from app.core.plan.explaining.table_warnings import table_warnings
from tests.services.builders import schema


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"changelog-producer": "lookup"}, "merges_read_older_runs", "looks its keys up in the older runs"),
        ({"changelog-producer": "full-compaction"}, "changes_come_late", "after every 1 merge"),
        (
            {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "7"},
            "changes_come_late",
            "after every 7 merge",
        ),
        ({"changelog-producer": "input"}, "changelog_not_repaired", "the posted records"),
    ],
)
def test_a_changelog_is_reported_by_its_cost_or_delay(options: dict[str, str], code: str, words: str) -> None:
    [warning] = table_warnings(schema(options=options))
    assert (warning.code, warning.pointer) == (code, "/options/changelog-producer")
    assert words in warning.message
    assert warning.fix


@pytest.mark.parametrize(
    ("declared", "warned"),
    [
        ("VARCHAR", True),
        ("VARCHAR(1)", True),
        ("ARRAY<VARBINARY>", True),
        ("ROW<a VARCHAR(2), b ARRAY<VARCHAR>>", True),
        ("CHAR(1)", False),
        ("VARCHAR(2)", False),
        ("STRING", False),
        ("BYTES", False),
    ],
)
def test_a_text_of_one_character_is_warned_of_for_as_long_as_the_table_has_it(declared: str, *, warned: bool) -> None:
    found = table_warnings(schema(("id", "BIGINT"), ("v", declared)))
    assert [(one.code, one.pointer) for one in found] == [("length_of_one", "/schema/fields/1/type")] * warned


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ({}, True),
        ({"sequence.field": "v"}, False),
        ({"merge-engine": "partial-update", "fields.v.sequence-group": "w", "record.absent-columns": "null"}, False),
        ({"merge-engine": "first-row"}, False),
    ],
)
def test_a_position_of_events_that_orders_nothing_is_warned_of(options: dict[str, str], *, warned: bool) -> None:
    columns = (("id", "BIGINT"), ("v", "BIGINT"), ("w", "BIGINT"))
    found = table_warnings(schema(*columns, options={**options, "fields.v.from-event": "source.lsn"}))
    said = [(one.code, one.pointer) for one in found if one.pointer.endswith("from-event")]
    assert said == [("position_orders_nothing", "/options/fields.v.from-event")] * warned


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ({}, ["events_unordered"]),
        ({"sequence.field": "v"}, []),
        ({"sequence.field": "v", "fields.v.from-event": "source.lsn"}, []),
        ({"merge-engine": "first-row"}, []),
        (
            {"merge-engine": "aggregation", "sequence.field": "v", "fields.w.aggregate-function": "sum"},
            ["late_records_count"],
        ),
        (
            {"merge-engine": "aggregation", "fields.w.aggregate-function": "collect"},
            ["late_records_count", "events_unordered"],
        ),
        ({"merge-engine": "aggregation", "sequence.field": "v", "fields.w.aggregate-function": "max"}, []),
    ],
)
def test_events_that_may_come_twice_or_late_are_warned_of(options: dict[str, str], warned: list[str]) -> None:
    of_w = "ARRAY<BIGINT>" if options.get("fields.w.aggregate-function") == "collect" else "BIGINT"
    columns = (("id", "BIGINT"), ("v", "BIGINT"), ("w", of_w))
    found = table_warnings(schema(*columns, options=options | {"events.source": "public.orders"}))
    assert [one.code for one in found if one.pointer == "/options/events.source"] == warned
    without = table_warnings(schema(*columns, options=options))
    assert not [one for one in without if one.code in ("events_unordered", "late_records_count")]
