"""Runs written under an older schema: read as they are where their state means the same, carried over where not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from app.core.plan.merging.evolution import carried_over, combined_row, remembering, same_fold, same_state
from app.core.plan.merging.fold import finish, fold, visible_row
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.records import KINDS_BY_TEXT, Record
from app.core.table.schema import TableSchema

BASE = {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"}
COLUMNS = (("k", "INT"), ("a", "INT"), ("b", "STRING"))


def schema(options: Mapping[str, str] = BASE, columns: tuple[tuple[int, str, str], ...] = ()) -> TableSchema:
    fields = columns or tuple((i, name, data_type) for i, (name, data_type) in enumerate(COLUMNS))
    body: dict[str, Any] = {
        "fields": [{"id": i, "name": name, "type": data_type} for i, name, data_type in fields],
        "primaryKeys": [fields[0][1]],
        "options": dict(options),
    }
    return TableSchema.from_json(body)


def test_renamed_added_and_dropped_columns_leave_the_meaning_of_old_state_alone() -> None:
    renamed = schema(
        {"merge-engine": "aggregation", "fields.total.aggregate-function": "sum"},
        ((0, "k", "INT"), (1, "total", "INT"), (3, "c", "STRING")),
    )
    assert same_fold(schema(), renamed)


def test_places_comments_and_defaults_keep_the_meaning() -> None:
    old = schema()
    *others, last = old.columns
    described = replace(last, description="new", default="x")
    assert same_fold(old, replace(old, columns=(*others[:1], described, *others[1:]), comment="new"))


def test_a_wider_type_is_no_other_meaning() -> None:
    assert same_fold(schema(), schema(BASE, ((0, "k", "INT"), (1, "a", "BIGINT"), (2, "b", "STRING"))))


SUMMED = {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"}
REPLAYED = {
    "merge-engine": "partial-update",
    "fields.g.sequence-group": "a",
    "fields.a.aggregate-function": "sum",
    "partial-update.remove-record-on-sequence-group": "g",
}


@pytest.mark.parametrize("order", [1, -1])
def test_a_column_that_decides_whether_rows_can_be_deleted_changes_the_meaning(order: int) -> None:
    """``max`` takes no retracts: with it every row is alive, without it state must say which ones are."""
    with_it = schema(SUMMED | {"fields.b.aggregate-function": "max"})
    without = schema(SUMMED, ((0, "k", "INT"), (1, "a", "INT")))
    old, new = (with_it, without)[::order]
    assert not same_state(old, new)
    state = fold(compile_plan(old), [Record(KINDS_BY_TEXT["+I"], {"k": 1, "a": 5, "b": "x"})])
    assert state is not None
    carried = carried_over(state, compile_plan(old), compile_plan(new))
    assert carried is not None
    assert (finish(compile_plan(new), carried) or {})["a"] == 5


def test_a_meaning_that_comes_back_is_not_the_one_of_before() -> None:
    first, other = schema(SUMMED), schema(SUMMED | {"fields.a.aggregate-function": "max"})
    back = remembering(remembering(first, other), first)
    assert not same_fold(first, back)
    commented = replace(first, comment="the same")
    assert same_fold(first, remembering(first, commented))
    assert same_fold(back, remembering(back, commented))


def test_a_table_remembers_its_retracts_when_a_column_comes_that_takes_none() -> None:
    old = schema(SUMMED, ((0, "k", "INT"), (1, "a", "INT")))
    largest = schema(SUMMED | {"fields.b.aggregate-function": "max"})
    new = remembering(old, largest)
    assert new.remembers_removals
    assert same_state(old, new)
    assert not same_fold(old, largest)
    assert remembering(largest, largest) == largest


def test_the_log_of_a_replayed_row_outlives_new_names_and_columns() -> None:
    old = schema(REPLAYED, ((0, "k", "INT"), (1, "g", "INT"), (2, "a", "INT"), (3, "x", "INT")))
    options = {key: text for key, text in REPLAYED.items() if "fields." not in key}
    options |= {"fields.g.sequence-group": "total", "fields.total.aggregate-function": "sum"}
    new = schema(options, ((0, "k", "INT"), (1, "g", "INT"), (2, "total", "INT"), (4, "a", "STRING")))
    assert same_fold(old, new)
    plans = compile_plan(old), compile_plan(new)
    before = fold(plans[0], [Record(KINDS_BY_TEXT["+I"], {"k": 1, "g": 1, "a": 5, "x": 9}, 1)])
    after = fold(plans[1], [Record(KINDS_BY_TEXT["+I"], {"k": 1, "g": 2, "total": 3, "a": "new"}, 2)])
    assert before is not None
    assert after is not None
    row = finish(plans[1], combined_row(plans[1], [(plans[0], before), (plans[1], after)]) or {})
    assert row == {"k": 1, "g": 2, "total": 8, "a": "new"}


ELEMENTS = {
    "collect": {"fields.a.aggregate-function": "collect"},
    "distinct": {"fields.a.aggregate-function": "collect", "fields.a.distinct": "true", "ignore-delete": "true"},
    "nested_update": {"fields.a.aggregate-function": "nested_update"},
}


def _elements(options: Mapping[str, str], *names: str) -> TableSchema:
    fields = [{"id": 5 + "xyz".index(name), "name": name, "type": "INT"} for name in names]
    element = {"type": "ROW", "fields": fields}
    column = {"id": 1, "name": "a", "type": {"type": "ARRAY", "element": element}}
    body = {"fields": [{"id": 0, "name": "k", "type": "INT"}, column], "primaryKeys": ["k"]}
    return TableSchema.from_json(body | {"options": {"merge-engine": "aggregation", **options}})


@pytest.mark.parametrize("function", ELEMENTS)
def test_a_field_less_in_compared_elements_begins_with_what_is_shown(function: str) -> None:
    """Otherwise a retract that met no element, or one of two distinct elements, would count or not by whether the runs
    were compacted before.
    """
    old = _elements(ELEMENTS[function], "x", "y")
    assert same_fold(old, _elements(ELEMENTS[function], "x", "y", "z"))
    new = remembering(old, _elements(ELEMENTS[function], "x"))
    plans = compile_plan(old), compile_plan(new)
    second = "+I" if function == "distinct" else "-U"
    records = [
        Record(KINDS_BY_TEXT[kind], {"k": 1, "a": [{"x": 1, "y": y}]}, y) for kind, y in (("+I", 2), (second, 3))
    ]
    apart = [(plans[0], state) for record in records if (state := fold(plans[0], [record])) is not None]
    together = fold(plans[0], records)
    assert together is not None
    shown = [finish(plans[1], combined_row(plans[1], runs) or {}) for runs in (apart, [(plans[0], together)])]
    assert shown == [{"k": 1, "a": [{"x": 1}]}] * 2


def test_elements_that_nothing_compares_may_lose_a_field() -> None:
    adds = {**ELEMENTS["collect"], "ignore-delete": "true", "fields.a.ignore-retract": "true"}
    assert same_fold(_elements(adds, "x", "y"), _elements(adds, "x"))


@pytest.mark.parametrize("others", [(), ((1, "a", "INT"), (2, "b", "STRING"))])
@pytest.mark.parametrize("kind", ["+I", "-D"])
def test_a_row_is_shown_as_before_when_none_of_its_columns_is_left(
    kind: str, others: tuple[tuple[int, str, str], ...]
) -> None:
    old = compile_plan(schema({}, ((0, "k", "INT"), *others)))
    new = compile_plan(schema({}, ((0, "k", "INT"), (3, "c", "INT"))))
    before = fold(old, [Record(KINDS_BY_TEXT[kind], {"k": 1, "a": 5, "b": "x"}, 1)])
    assert before is not None
    row = combined_row(new, [(old, before)])
    assert row is not None
    assert visible_row(new, row) == ({"k": 1, "c": None} if kind == "+I" else None)


BY_A = {"sequence.field": "a"}
IGNORED = {"ignore-delete": "true"}


def test_a_table_by_sequence_that_comes_to_ignore_deletes_remembers_those_that_it_had() -> None:
    old = schema(BY_A)
    new = remembering(old, schema(BY_A | IGNORED))
    assert new.remembers_removals
    assert same_fold(old, new)
    assert compile_plan(new).state_columns == compile_plan(old).state_columns
    assert remembering(new, schema(BY_A | IGNORED | {"fields.b.default-value": "x"})).remembers_removals


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, IGNORED),
        (BY_A, {"sequence.field": "b", **IGNORED}),
        (BY_A, BY_A | {"merge.max-staleness": "5 s"}),
        (BY_A | IGNORED, BY_A),
        (BASE, BASE | IGNORED),
    ],
)
def test_a_table_remembers_no_removals_where_no_record_could_meet_them(
    before: dict[str, str], after: dict[str, str]
) -> None:
    assert not remembering(schema(before), schema(after)).remembers_removals
