"""An option changed in the middle of a history keeps the meaning of what is stored, or is seen by ``same_fold``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from random import Random
from typing import Any

import pytest

from app.core.errors import Invalid
from app.core.plan.merging.evolution import carried_over, combined_row, same_fold
from app.core.plan.merging.fold import finish, fold, lift
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.table.options.entries import DEFAULT_FUNCTION, FIELD_OPTIONS, TABLE_OPTIONS
from app.core.table.records import KINDS_BY_TEXT, Record
from tests import oracle
from tests.builders import schema_of
from tests.core.rules.test_widening import records
from tests.histories import random_history

COLUMNS = (
    ("k", "INT"),
    ("s", "INT"),
    ("t", "TIMESTAMP(6)"),
    ("a", "INT"),
    ("b", "STRING"),
    ("l", "ARRAY<INT>"),
    ("n", "ARRAY<ROW<id INT, s INT, v STRING>>"),
    ("m", "MAP<STRING, ROW<v INT, ts STRING>>"),
)
SUM = {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"}
PARTIAL = {"merge-engine": "partial-update"}
GROUP = {**PARTIAL, "fields.s.sequence-group": "a,b"}
REMOVING = {**SUM, "aggregation.remove-record-on-delete": "true", "sequence.field": "s"}
REMOVING_GROUP = {**GROUP, "partial-update.remove-record-on-sequence-group": "s"}
NESTED = {"merge-engine": "aggregation", "fields.n.aggregate-function": "nested_update"}
KEYED = {**NESTED, "fields.n.nested-key": "id"}
LAST = {"fields.a.aggregate-function": "last_value"}
BY_S, BY_T = {"sequence.field": "s"}, {"sequence.field": "t"}
IGNORED, NO_BEFORE = {"ignore-delete": "true"}, {"ignore-update-before": "true"}
COLLECTED = {**SUM, "fields.l.aggregate-function": "collect"}
LISTED = {**SUM, "fields.b.aggregate-function": "listagg", "fields.b.ignore-retract": "true"}
TIMED = {**SUM, "fields.m.aggregate-function": "merge_map_with_keytime", "fields.m.ignore-retract": "true"}
LATE, LISTED_GROUP = {"sequence.late-horizon": "0"}, {**GROUP, "fields.b.aggregate-function": "listagg"}
ON_DELETE = "partial-update.remove-record-on-delete"
TELLING = {"record.absent-columns": "unchanged"}
Options = Mapping[str, str]
# Per option: tables, and what the option is changed to in each.
CASES: Mapping[str, list[tuple[Options, Options]]] = {
    "merge-engine": [({}, PARTIAL), ({}, {"merge-engine": "first-row"}), (PARTIAL, {"merge-engine": "aggregation"})],
    "sequence.field": [({}, BY_S), (BY_S, BY_T), (SUM, SUM | BY_S)],
    "sequence.field.sort-order": [(BY_S, BY_S | {"sequence.field.sort-order": "descending"})],
    "sequence.auto-padding": [
        (BY_T, BY_T | {"sequence.auto-padding": "second-to-micro"}),
        (BY_S, BY_S | {"sequence.auto-padding": "row-kind-flag"}),
    ],
    "sequence.late-horizon": [
        (LISTED | BY_S, LISTED | BY_S | LATE),
        (REMOVING, REMOVING | LATE),
        (REMOVING | LATE, REMOVING | {"sequence.late-horizon": "2"}),
        (PARTIAL | IGNORED | LISTED_GROUP | LATE, PARTIAL | IGNORED | LISTED_GROUP),
    ],
    "ignore-delete": [({}, IGNORED), (SUM, SUM | IGNORED), (REMOVING, REMOVING | IGNORED)],
    "ignore-update-before": [(BY_S, BY_S | NO_BEFORE), (REMOVING, REMOVING | NO_BEFORE)],
    ON_DELETE: [(PARTIAL | IGNORED, PARTIAL | {ON_DELETE: "true"})],
    "partial-update.remove-record-on-sequence-group": [(GROUP, REMOVING_GROUP)],
    "record.absent-columns": [
        (PARTIAL | IGNORED, PARTIAL | IGNORED | TELLING),
        (GROUP, GROUP | TELLING),
        (SUM | LAST, SUM | LAST | TELLING),
        (REMOVING | LAST, REMOVING | LAST | TELLING),
    ],
    "aggregation.remove-record-on-delete": [(SUM, SUM | {"aggregation.remove-record-on-delete": "true"})],
    DEFAULT_FUNCTION: [(SUM, SUM | {DEFAULT_FUNCTION: "last_value"})],
    "sequence-group": [(PARTIAL | IGNORED, GROUP), (GROUP, PARTIAL | {"fields.s.sequence-group": "a"})],
    "aggregate-function": [
        *((SUM, SUM | {"fields.a.aggregate-function": other}) for other in ("last_value", "max")),
        (SUM, SUM | {"fields.a.aggregate-function": "first_value", "fields.a.ignore-retract": "true"}),
        (SUM, LISTED),
        (REMOVING, REMOVING | LAST),
    ],
    "ignore-retract": [(SUM, SUM | {"fields.a.ignore-retract": "true"})],
    "distinct": [(COLLECTED, COLLECTED | {"fields.l.distinct": "true"})],
    "list-agg-delimiter": [(LISTED, LISTED | {"fields.b.list-agg-delimiter": "|"})],
    "nested-key": [(NESTED, KEYED)],
    "nested-key-null-strategy": [(KEYED, KEYED | {"fields.n.nested-key-null-strategy": "ignore"})],
    "nested-sequence-field": [(KEYED, KEYED | {"fields.n.nested-sequence-field": "s"})],
    "count-limit": [(NESTED, NESTED | {"fields.n.count-limit": "2"})],
    "ts-field": [(TIMED, TIMED | {"fields.m.ts-field": "v"})],
}
# The same plan but for what is taken in and shown: ``ignore-update-before`` only keeps records out from now on.
KEPT = {"ignore-update-before"}
NOT_IN_THE_ORACLE = {"ts-field"}
SAMPLES = ("true", "1", "2 h", "5 mb", "k", "input", "update-time", "yyyy")
# What of a plan says which records are taken in and how a row is shown, not what stored state means.
DOORS = {
    "schema", "dropped", "refusals", "row_kind_column", "required_columns", "write_defaults", "read_defaults",
    "row_kind_default",
}  # fmt: skip
COMPARED = {"rules", "order", "row"}


def compiled(options: Options) -> MergePlan:
    return compile_plan(schema_of(oracle.TableCase(COLUMNS, ("k",), options)))


def test_every_option_that_folds_is_changed_here_and_no_other() -> None:
    entries = (*TABLE_OPTIONS.values(), *FIELD_OPTIONS.values())
    assert {option.key for option in entries if option.folds} == CASES.keys()


def test_every_part_of_a_plan_is_compared_or_concerns_no_stored_state() -> None:
    assert {field.name for field in fields(MergePlan)} == DOORS | COMPARED


@pytest.mark.parametrize("key", sorted(TABLE_OPTIONS.keys() - CASES.keys()))
def test_an_option_that_no_history_changes_here_leaves_the_plan_as_it_is(key: str) -> None:
    """A new option that folds fails here until it has a case above."""
    plain = compiled({})
    for text in SAMPLES:
        try:
            other = compiled({key: text})
        except Invalid:
            continue
        assert same_fold(plain.schema, other.schema)
        assert (plain.rules, plain.order, plain.row) == (other.rules, other.order, other.row)


PAIRS = [(key, *pair) for key, pairs in CASES.items() for pair in pairs]


@pytest.mark.parametrize(("key", "before", "after"), PAIRS)
def test_an_option_changed_in_the_middle_keeps_the_meaning_or_is_seen(
    key: str, before: Options, after: Options
) -> None:
    old, new = (oracle.TableCase(COLUMNS, ("k",), options) for options in (before, after))
    plans = compiled(before), compiled(after)
    seen = not same_fold(plans[0].schema, plans[1].schema)
    assert seen is (key not in KEPT)
    for seed in range(0 if key in NOT_IN_THE_ORACLE else 25):
        random = Random(seed)
        histories = [_of_one_key(random, table, plan) for table, plan in zip((old, new), plans, strict=True)]
        states = [
            fold(plan, records(plan, changes, first))
            for plan, changes, first in zip(plans, histories, (1, 1001), strict=True)
        ]
        whole = combined_row(plans[1], [(p, state) for p, state in zip(plans, states, strict=True) if state])
        if key == "ignore-delete":  # the table goes on without retracts, and keeps the removals it had
            adds = [change for change in histories[1] if change.add]
            expected = oracle.fold(old, [*_entering(old, new, histories[0]), *adds])
        elif seen:
            expected = oracle.fold(new, [*_entering(old, new, histories[0]), *histories[1]])
        else:
            filtered = [change for change in histories[1] if change.kind != "-U"]
            expected = oracle.fold(old, [*histories[0], *filtered])
        assert (None if whole is None else finish(plans[1], whole)) == expected, histories


def _of_one_key(random: Random, table: oracle.TableCase, plan: MergePlan) -> list[oracle.Change]:
    """Changes of one key that the table takes."""
    changes = random_history(random, table, True, 60)
    required = ("s", "t") if plan.required_columns else ()
    return [
        change
        for change in changes
        if change.values["k"] == 1
        and plan.refusal_of(Record(KINDS_BY_TEXT[change.kind], change.values, named=change.named)) is None
        and all(change.values[name] is not None for name in required)
    ]


def _said(table: oracle.TableCase, row: Mapping[str, Any]) -> frozenset[str]:
    """What a row says as a first record: its values, and nulls where the old rules let null overwrite."""
    groups = [(key.split(".")[1], text) for key, text in table.options.items() if key.endswith(".sequence-group")]
    grouped = {name for ordering, text in groups for name in (*oracle.names(ordering), *oracle.names(text))}
    kept = grouped | {name for name in row if table.options.get(f"fields.{name}.aggregate-function") == "last_value"}
    return frozenset(name for name, value in row.items() if value is not None or name in kept)


TWO_FIELDS = {**PARTIAL, **TELLING, "fields.s,t.sequence-group": "a,n", "fields.b.sequence-group": "l"}
LISTED_TWO = {**TWO_FIELDS, "partial-update.remove-record-on-sequence-group": "s"}


@pytest.mark.parametrize("before", [TWO_FIELDS, LISTED_TWO])
@pytest.mark.parametrize("change", [{"sequence.field": "m2"}, LAST, {"fields.n.aggregate-function": "sum"}])
@pytest.mark.parametrize("ordering", [(1, None), (None, 1)])
def test_a_group_of_two_fields_of_which_one_is_null_outlives_a_change_of_meaning(
    before: Options, change: Options, ordering: tuple[int | None, int | None]
) -> None:
    columns = (
        ("k", "INT"),
        ("s", "INT"),
        ("t", "INT"),
        ("a", "INT"),
        ("n", "INT"),
        ("b", "INT"),
        ("l", "INT"),
        ("m2", "INT"),
    )
    old, new = (compile_plan(schema_of(oracle.TableCase(columns, ("k",), o))) for o in (before, before | change))
    assert not same_fold(old.schema, new.schema)
    row = {"k": 1, "s": ordering[0], "t": ordering[1], "a": 1, "n": 7, "b": None, "l": None, "m2": 3}
    state = fold(old, [Record(KINDS_BY_TEXT["+I"], row, 1)])
    assert state is not None
    carried = carried_over(state, old, new)
    assert carried is not None
    assert finish(new, carried) == row


@pytest.mark.parametrize(
    ("options", "cleared", "late"),
    [
        ({"fields.s.sequence-group": "a"}, {"s": 10, "a": None}, {"s": 7, "a": 1}),
        (
            {"fields.s.sequence-group": "a", "partial-update.remove-record-on-sequence-group": "s"},
            {"s": 10, "a": None},
            {"s": 7, "a": 1},
        ),
        ({}, {"a": None, "z": 9}, {"a": 4, "z": 2}),
    ],
)
def test_what_was_named_null_stays_cleared_under_a_new_order(
    options: Options, cleared: Mapping[str, Any], late: Mapping[str, Any]
) -> None:
    columns = (("k", "INT"), ("s", "INT"), ("a", "INT"), ("z", "INT"))
    every = dict.fromkeys(("k", "s", "a", "z"))
    before = {**PARTIAL, **TELLING, **options}
    old, new = (
        compile_plan(schema_of(oracle.TableCase(columns, ("k",), o)))
        for o in (before, before | {"sequence.field": "z"})
    )

    def naming(values: Mapping[str, Any], arrival: int) -> Record:
        given = {"k": 1, **values}
        return Record(KINDS_BY_TEXT["+I"], {**every, **given}, arrival, frozenset(given))

    state = fold(old, [naming({"s": 5, "a": 8, "z": 1}, 1), naming(cleared, 2)])
    assert state is not None
    whole = combined_row(new, [(old, state), (new, lift(new, naming(late, 3)))])
    assert (finish(new, whole or {}) or {})["a"] is None


ORDER = ("sequence.field", "sequence.field.sort-order", "sequence.auto-padding", "merge-engine")


def _entering(old: oracle.TableCase, new: oracle.TableCase, history: list[oracle.Change]) -> list[oracle.Change]:
    """What the old rows are under the new rules: the row that is shown, or its removal."""
    row = oracle.fold(old, history)
    if row is not None:
        return [oracle.Change("+I", row, _said(old, row) if TELLING.items() <= new.options.items() else None)]
    removing = "aggregation.remove-record-on-delete"
    if any(old.options.get(key) != new.options.get(key) for key in (*ORDER, removing)) or removing not in old.options:
        return []
    return [history[p] for p in oracle.merge_order(old, history) if history[p].kind == "-D"][-1:]
