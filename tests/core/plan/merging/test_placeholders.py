"""Which plans are combined by whole columns, and what their steps ask for it."""

from __future__ import annotations

import pytest

from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.plan.merging.placeholders import combine_steps, combines_by_columns
from app.core.plan.merging.terms import Question
from tests.builders import schema_of
from tests.oracle import TableCase

UNCHANGED = {"record.absent-columns": "unchanged"}
REMOVES = {"aggregation.remove-record-on-delete": "true"}


def plan_of(function: str, data_type: str, options: dict[str, str]) -> MergePlan:
    columns = (("k", "INT"), ("s", "INT"), ("n", data_type))
    reported = {"merge-engine": "aggregation", "fields.n.aggregate-function": function}
    return compile_plan(schema_of(TableCase(columns, ("k",), reported | options)))


@pytest.mark.parametrize("options", [{}, REMOVES], ids=["plain", "removing"])
@pytest.mark.parametrize(
    ("function", "data_type", "reported"),
    [
        ("sum", "BIGINT", True),
        ("sum", "DECIMAL(10, 2)", True),
        ("sum", "DOUBLE", True),
        ("sum", "FLOAT", True),
        ("max", "STRING", True),
        ("min", "DOUBLE", True),
        ("last_non_null_value", "ARRAY<INT>", True),
        ("bool_and", "BOOLEAN", True),
        ("bool_or", "BOOLEAN", True),
        ("product", "BIGINT", False),
        ("listagg", "STRING", False),
        ("collect", "ARRAY<INT>", False),
    ],
)
def test_functions_that_keep_or_add_are_reported_by_form(
    function: str, data_type: str, reported: bool, options: dict[str, str]
) -> None:
    plan = plan_of(function, data_type, options)
    assert all(combines_by_columns(plan, rule) for rule in plan.rules) is reported


def test_what_was_named_of_many_columns_is_requested_each_by_itself() -> None:
    columns = (("k", "INT"), *((f"c{place}", "INT") for place in range(40)))
    plan = compile_plan(schema_of(TableCase(columns, ("k",), {"merge-engine": "partial-update", **UNCHANGED})))
    given = []
    for step in combine_steps(plan):
        answers: tuple[tuple[Question, bool], ...] = ()
        while isinstance(outcome := step.outcome(answers), Question):
            answers = (*answers, (outcome, "IsNull" not in type(outcome).__name__))
        assert len(answers) <= 5
        assert isinstance(outcome, dict)
        given += list(outcome)
    assert len(given) == len(set(given)), "no column is given twice"
    assert set(given) == {name for name, _ in plan.state_columns} - {"k"}
