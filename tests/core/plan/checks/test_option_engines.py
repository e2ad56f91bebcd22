"""The merge engines that an option's entry names are those in which it does something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from app.core.errors import FaultCode, Invalid
from app.core.plan.explaining.table_warnings import table_warnings
from app.core.plan.merging.merge_plan import compile_plan
from app.core.rules.stepwise import Stepwise
from app.core.table.options.entries import DEFAULT_FUNCTION, FIELD_OPTIONS, TABLE_OPTIONS, MergeEngine
from app.core.table.options.option import Option
from tests.core.tables import table

COLUMNS = {
    "k": "INT",
    "a": "STRING",
    "g": "INT",
    "n": "ARRAY<ROW<i INT, s INT>>",
    "m": "MAP<STRING, ROW<v INT, w INT>>",
    "l": "ARRAY<INT>",
}
GROUPED = {"fields.g.sequence-group": "a,n,m,l"}


def function(column: str, name: str) -> dict[str, str]:
    return {f"fields.{column}.aggregate-function": name}


NESTED = function("n", "nested_update")
KEYED = {**NESTED, "fields.n.nested-key": "i"}
# Of each option what is set with it, its key and its value.
SET: Mapping[str, tuple[Mapping[str, str], str, str]] = {
    "sequence.field": ({}, "sequence.field", "g"),
    "sequence.field.sort-order": ({"sequence.field": "g"}, "sequence.field.sort-order", "descending"),
    "sequence.auto-padding": ({"sequence.field": "g"}, "sequence.auto-padding", "row-kind-flag"),
    "sequence.late-horizon": ({"sequence.field": "g", **function("a", "listagg")}, "sequence.late-horizon", "5"),
    "partial-update.remove-record-on-delete": ({}, "partial-update.remove-record-on-delete", "true"),
    "partial-update.remove-record-on-sequence-group": (GROUPED, "partial-update.remove-record-on-sequence-group", "g"),
    "record.absent-columns": ({}, "record.absent-columns", "unchanged"),
    "aggregation.remove-record-on-delete": ({}, "aggregation.remove-record-on-delete", "true"),
    DEFAULT_FUNCTION: ({}, DEFAULT_FUNCTION, "last_value"),
    "tombstone.time-retained": ({"sequence.field": "g"}, "tombstone.time-retained", "1 d"),
    "sequence-group": ({}, "fields.g.sequence-group", "a"),
    "aggregate-function": ({}, "fields.a.aggregate-function", "max"),
    "ignore-retract": (function("a", "last_value"), "fields.a.ignore-retract", "true"),
    "distinct": (function("l", "collect"), "fields.l.distinct", "true"),
    "list-agg-delimiter": (function("a", "listagg"), "fields.a.list-agg-delimiter", ";"),
    "nested-key": (NESTED, "fields.n.nested-key", "i"),
    "nested-key-null-strategy": (KEYED, "fields.n.nested-key-null-strategy", "ignore"),
    "nested-sequence-field": (KEYED, "fields.n.nested-sequence-field", "s"),
    "count-limit": (NESTED, "fields.n.count-limit", "3"),
    "ts-field": (function("m", "merge_map_with_keytime"), "fields.m.ts-field", "v"),
}
# With a sequence group, partial-update takes functions. These options are set without one.
WITHOUT_GROUP = ("sequence-group", "partial-update.remove-record-on-delete")
LIMITED = [option for option in (*TABLE_OPTIONS.values(), *FIELD_OPTIONS.values()) if option.engines]


def around(option: Option, engine: MergeEngine) -> dict[str, str]:
    """The options of a table in which ``option`` may be set, without it."""
    groups = engine is MergeEngine.PARTIAL_UPDATE and option.key not in WITHOUT_GROUP
    deletes = {"ignore-delete": "true"} if option.key == DEFAULT_FUNCTION else {}
    return {"merge-engine": engine.value, **SET[option.key][0], **deletes, **(GROUPED if groups else {})}


def rules_of(options: Mapping[str, str]) -> list[Any]:
    plan = compile_plan(table(options, COLUMNS))
    rules = [(rule.called, rule.late) if isinstance(rule, Stepwise) else rule for rule in plan.rules]
    return [rules, plan.order, plan.row, plan.refusals, plan.required_columns, plan.schema.absent_unchanged]


def without_effect(option: Option, engine: MergeEngine) -> bool:
    """Whether the table refuses or warns of the option, or folds as it does without it."""
    before = around(option, engine)
    _, key, text = SET[option.key]
    after = {**before, key: text}
    try:
        same = rules_of(before) == rules_of(after)
    except Invalid:
        return True
    warned = {
        warning.about.option
        for warning in table_warnings(table(after, COLUMNS))
        if warning.code is FaultCode.OPTION_WITHOUT_EFFECT
    }
    return same or key in warned


def test_every_option_of_some_engines_is_tried() -> None:
    assert {option.key for option in LIMITED} == set(SET)


@pytest.mark.parametrize("engine", MergeEngine)
@pytest.mark.parametrize("option", LIMITED, ids=[option.key for option in LIMITED])
def test_an_option_does_something_in_its_engines_alone(option: Option, engine: MergeEngine) -> None:
    assert without_effect(option, engine) is not option.of_engine(engine)


@pytest.mark.parametrize(
    "option", [*TABLE_OPTIONS.values(), *FIELD_OPTIONS.values()], ids=lambda option: str(option.key)
)
def test_every_option_says_what_it_takes(option: Option) -> None:
    assert option.takes
