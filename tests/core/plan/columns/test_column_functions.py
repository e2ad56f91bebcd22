"""The function of a column is its own, the default, or the engine's, and keys and orders have none."""

from __future__ import annotations

import pytest

from app.core.functions.entries import FUNCTIONS
from app.core.plan.columns.column_functions import function_of
from app.core.table.options.entries import DEFAULT_FUNCTION, FIELD_OPTIONS
from tests.core.option_cases import AGGREGATION, FIRST_ROW, PARTIAL, Options
from tests.core.tables import table

OWN = {"fields.a.aggregate-function": "sum"}
DEFAULT = {DEFAULT_FUNCTION: "max"}
GROUPED = {**PARTIAL, "fields.g.sequence-group": "a,b,h"}


@pytest.mark.parametrize(
    ("options", "column", "called", "key"),
    [
        (AGGREGATION | OWN | DEFAULT, "a", "sum", "fields.a.aggregate-function"),
        (AGGREGATION | OWN | DEFAULT, "b", "max", DEFAULT_FUNCTION),
        (AGGREGATION | OWN, "b", "last_non_null_value", "merge-engine"),
        (GROUPED | OWN | DEFAULT, "a", "sum", "fields.a.aggregate-function"),
        (GROUPED | OWN | DEFAULT, "b", "max", DEFAULT_FUNCTION),
    ],
)
def test_a_column_has_its_own_function_or_the_default_or_the_engines(
    options: Options, column: str, called: str, key: str
) -> None:
    schema = table(options)
    for view in (schema.parsed, schema.parsed.folding):
        used = function_of(schema, view, column)
        assert (used.called, used.key, used.entry) == (called, key, FUNCTIONS[called])


@pytest.mark.parametrize(
    ("options", "column"),
    [
        (AGGREGATION | DEFAULT, "k"),
        (AGGREGATION | DEFAULT | {"sequence.field": "a"}, "a"),
        (GROUPED | DEFAULT, "g"),
        (GROUPED, "a"),
        (FIRST_ROW | OWN | DEFAULT, "a"),
        (OWN | DEFAULT, "a"),
    ],
)
def test_keys_and_orders_and_engines_without_functions_have_none(options: Options, column: str) -> None:
    schema = table(options)
    assert function_of(schema, schema.parsed, column) is None


def test_an_old_name_is_the_function_of_today_and_an_unknown_one_is_none() -> None:
    for called, entry in (("first_not_null_value", FUNCTIONS["first_non_null_value"]), ("zzz", None)):
        schema = table(AGGREGATION | {"fields.a.aggregate-function": called})
        used = function_of(schema, schema.parsed, "a")
        assert used.entry is entry


def test_a_function_sees_its_own_options_and_none_that_say_how_it_is_used() -> None:
    how_it_is_used = {"sequence-group", "aggregate-function", "ignore-retract", "default-value", "from-event"}
    seen = table(AGGREGATION | OWN | {"fields.a.distinct": "true"}).parsed.of_function("a")
    assert seen.keys() == FIELD_OPTIONS.keys() - how_it_is_used | {"given"}
    assert seen["given"] == {"aggregate-function", "distinct"}
