"""Options compile to a plan; state columns beside the visible ones are there only where an answer needs them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from app.core.plan.merging.fold import finish, fold
from app.core.plan.merging.merge_plan import MergePlan
from app.core.rules.row import LIVE_COLUMN, RESET_COLUMN
from app.core.table.records import Record, RowKind
from tests.core.tables import plan

Options = Mapping[str, str]
COLUMNS = {"k": "INT", "a": "INT", "b": "INT", "g": "INT", "h": "INT"}
PARTIAL = {"merge-engine": "partial-update"}
AGGREGATION = {"merge-engine": "aggregation"}
FIRST_ROW = {"merge-engine": "first-row"}
IGNORE = {"ignore-delete": "true"}
GROUP = PARTIAL | {"fields.g.sequence-group": "a"}
A, B, G, H = 1, 2, 3, 4  # ids of the columns


def made(options: Options) -> MergePlan:
    return plan(options, COLUMNS)


def function(name: str, column: str = "a", engine: Options = AGGREGATION) -> dict[str, str]:
    return {**engine, f"fields.{column}.aggregate-function": name}


# A table that needs no more than is listed here beside its visible columns.
NEEDED: list[tuple[str, Options, set[str]]] = [
    ("deduplicate by arrival", {}, {LIVE_COLUMN}),
    ("deduplicate without deletes", IGNORE, set()),
    ("deduplicate without -U", {"ignore-update-before": "true"}, {LIVE_COLUMN}),
    ("deduplicate by sequence", {"sequence.field": "g"}, {LIVE_COLUMN}),
    (
        "deduplicate by sequence, descending, padded",
        {"sequence.field": "g", "sequence.field.sort-order": "descending", "sequence.auto-padding": "row-kind-flag"},
        {LIVE_COLUMN},
    ),
    ("deduplicate by sequence without deletes", {"sequence.field": "g"} | IGNORE, set()),
    ("first-row", FIRST_ROW, set()),
    ("first-row without deletes", FIRST_ROW | IGNORE, set()),
    ("partial-update that drops deletes", PARTIAL | IGNORE, set()),
    ("partial-update with groups that drops deletes", GROUP | IGNORE, set()),
    ("partial-update with two groups", GROUP | {"fields.h.sequence-group": "b"} | IGNORE, set()),
    ("partial-update with groups", GROUP, {LIVE_COLUMN}),
    (
        "partial-update that removes rows",
        PARTIAL | {"partial-update.remove-record-on-delete": "true"},
        {LIVE_COLUMN, RESET_COLUMN},
    ),
    (
        "partial-update by sequence",
        PARTIAL | IGNORE | {"sequence.field": "g"},
        {"_kf_order_1", "_kf_order_2", "_kf_order_4"},
    ),
    ("aggregation that drops deletes", AGGREGATION | IGNORE, set()),
    ("aggregation", AGGREGATION, {LIVE_COLUMN, *(f"_kf_seen_{i}" for i in (A, B, G, H))}),
    ("max that drops deletes", function("max") | IGNORE, set()),
    ("last_value that drops deletes", function("last_value") | IGNORE, set()),
    ("sum", function("sum") | IGNORE, {"_kf_carry_1"}),
]


@pytest.mark.parametrize(("options", "hidden"), [pytest.param(*case, id=name) for name, *case in NEEDED])
def test_a_table_carries_only_the_state_columns_that_its_options_need(options: Options, hidden: set[str]) -> None:
    assert {column.name for column in made(options).hidden} == hidden


@pytest.mark.parametrize("options", [PARTIAL, PARTIAL | {"ignore-update-before": "true"}, FIRST_ROW])
def test_a_table_that_refuses_every_retract_carries_no_state_columns(options: Options) -> None:
    assert made(options).hidden == ()


@pytest.mark.parametrize("name", ["first_value", "first_non_null_value"])
def test_a_first_value_is_remembered_beside_its_column_only_where_null_could_be_first(name: str) -> None:
    hidden = {column.name for column in made(function(name) | IGNORE).hidden}
    assert hidden <= ({"_kf_seen_1"} if name == "first_value" else set())


def test_keys_come_first_in_a_run_in_primary_key_order() -> None:
    assert [name for name, _ in plan(IGNORE, COLUMNS, key="h,a").state_columns] == ["h", "a", "k", "b", "g"]


@pytest.mark.parametrize("options", [options for _, options, _ in NEEDED])
def test_a_state_row_has_exactly_the_columns_of_a_run(options: Options) -> None:
    one = made(options)
    values = {"k": 1, "a": 2, "b": None, "g": 3, "h": None}
    state = fold(one, [Record(RowKind.INSERT, values, 0), Record(RowKind.UPDATE_AFTER, values, 1)])
    assert state is not None
    assert set(state) == {name for name, _ in one.state_columns}
    assert finish(one, state) is not None


@pytest.mark.parametrize("options", [IGNORE, PARTIAL | IGNORE, FIRST_ROW | IGNORE, function("max") | IGNORE])
def test_a_kind_that_is_dropped_is_not_refused(options: Options) -> None:
    assert made(options).refusals == ()


def test_hidden_rows_are_forgotten_only_where_no_late_record_could_sort_before_them() -> None:
    assert made({}).row.forgets_hidden
    for options in ({"sequence.field": "g"}, GROUP, AGGREGATION, IGNORE):
        assert not made(options).row.forgets_hidden


def test_totals_are_bounded_by_the_type_of_the_column() -> None:
    columns = {"k": "INT", "a": "TINYINT", "b": "DECIMAL(38, 2)", "g": "DOUBLE", "h": "BIGINT"}
    totals = plan(AGGREGATION | {"fields.default-aggregate-function": "sum"}, columns).totals
    assert [(t.column.name, str(t.low), str(t.high)) for t in totals] == [
        ("a", "-128", "127"),
        ("b", "-" + "9" * 36 + ".99", "9" * 36 + ".99"),
        ("h", str(-(2**63)), str(2**63 - 1)),
    ]
