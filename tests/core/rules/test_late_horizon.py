"""``sequence.late-horizon``: what comes too late changes nothing, however records were cut into batches, merges and
compactions, and what no record can come before any more leaves the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from app.core.plan.explaining.explanations import column_words, depends_on_arrival, reasons, row_words
from app.core.plan.explaining.table_warnings import table_warnings
from app.core.plan.merging.fold import combine_all, finish, lift
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.rules.replays.replay import BASE, LOG, Replay
from app.core.rules.stepwise import Stepwise
from app.core.table.records import KINDS_BY_TEXT, Record
from tests import oracle
from tests.builders import schema_of
from tests.core.plan.merging.test_fold import combine_anyhow, to_records
from tests.core.rules.test_settled_logs import settled, state_of
from tests.histories import cut, examples, random_history, random_table
from tests.services.builders import schema

COLUMNS = (("id", "INT"), ("g", "INT"), ("n", "INT"), ("t", "STRING"), ("at", "TIMESTAMP(3)"))
LISTED = {
    "merge-engine": "aggregation",
    "sequence.field": "g",
    "fields.t.aggregate-function": "listagg",
    "fields.n.aggregate-function": "sum",
    "sequence.late-horizon": "10",
}
REMOVED = {**LISTED, "aggregation.remove-record-on-delete": "true"}
GROUPED = {
    "merge-engine": "partial-update",
    "fields.g.sequence-group": "t",
    "fields.t.aggregate-function": "listagg",
    "fields.at.sequence-group": "n",
    "fields.n.aggregate-function": "product",
    "sequence.late-horizon": "10",
}


def plan_of(options: Mapping[str, str]) -> MergePlan:
    return compile_plan(schema(*COLUMNS, options=options))


def record(arrival: int, kind: str = "+I", **values: Any) -> Record:
    return Record(KINDS_BY_TEXT[kind], {name: values.get(name) for name, _ in COLUMNS} | {"id": 1}, arrival)


def log_of(plan: MergePlan, state: Mapping[str, Any]) -> Any:
    return next(state[name] for name, _ in plan.state_columns if name.startswith("_kf_log"))


@pytest.mark.slow(reason="plays many long histories")
@settings(max_examples=examples(150))
@given(seed=st.integers(0, 2**32))
def test_any_cut_and_any_compaction_leaves_out_what_came_too_late(seed: int) -> None:
    random = Random(seed)
    while True:
        table, retracts = random_table(random, random.choice(("partial-update", "aggregation")))
        if "sequence.late-horizon" in table.options:
            plan = compile_plan(schema_of(table))
            if any(getattr(rule, "late", None) for rule in plan.rules):
                break
    note(f"{table}")
    one_key = {name: value for name, value in {"k": 1, "j": "x"}.items() if name in table.primary_key}
    drawn = random_history(random, table, retracts, 25)
    changes = [oracle.Change(change.kind, {**change.values, **one_key}) for change in drawn]
    note(f"{changes}")
    expected = oracle.fold(table, changes)
    if records := to_records(plan, changes):
        whole = settled(plan, state_of(plan, *records))
        assert oracle.meant(table, finish(plan, whole)) == expected
        pieces = [records[piece] for piece in cut(random, len(records), 6) if records[piece]]
        states = [combine_anyhow(random, plan, [lift(plan, record) for record in piece]) for piece in pieces]
        states[0] = settled(plan, states[0])
        combined = combine_anyhow(random, plan, states, oldest=True)
        assert oracle.meant(table, finish(plan, combined)) == expected


@pytest.mark.parametrize("options", [LISTED, REMOVED])
def test_a_log_holds_the_horizon_and_not_the_history(options: dict[str, str]) -> None:
    plan = plan_of(options)
    sizes = []
    for length in (100, 1000):
        state = settled(plan, state_of(plan, *(record(i, g=i, n=1, t="x") for i in range(length))))
        sizes.append(len(log_of(plan, state)))
        row = finish(plan, state)
        assert (row["n"], row["t"]) == (length, ",".join("x" * length))
    assert sizes[0] == sizes[1] <= 12


@pytest.mark.parametrize("options", [LISTED, REMOVED])
@pytest.mark.parametrize(("g", "text"), [(89, "taken"), (88, "left out"), (None, "left out")])
def test_a_record_at_the_horizon_is_taken_and_one_below_it_is_not(
    options: dict[str, str], g: int | None, text: str
) -> None:
    plan = plan_of(options)
    before = state_of(plan, *(record(i, g=i, n=1, t=str(i)) for i in range(100)))
    late = record(200, g=g, n=1, t="late")
    for below in (before, settled(plan, before)):
        state = combine_all(plan, [below, lift(plan, late)])
        row = finish(plan, state or {})
        assert row["t"].split(",").count("late") == (text == "taken")
        if text == "taken":
            assert "89,late,90" in row["t"]
    assert ("more than 10 below the latest g: ignored" in reasons(plan, before, late)["t"].words) is (
        text == "left out"
    )


def test_the_log_of_a_removed_row_keeps_its_removal_and_nothing_before_it() -> None:
    """An ALTER of what rows mean takes it from there."""
    plan = plan_of(REMOVED)
    history = [record(0, g=1, n=1), record(1, "-D", g=2), *(record(2 + i, "-U", g=50 + i, n=1) for i in range(3))]
    state = settled(plan, state_of(plan, *history))
    [replay] = [rule for rule in plan.rules if isinstance(rule, Replay)]
    removal = replay.removal(state)
    assert removal[replay.members["g"]] == 2
    assert (state[BASE], len(state[LOG])) == (None, 4)


def test_a_group_is_bounded_by_its_own_sequence_where_the_horizon_measures_it() -> None:
    plan = plan_of(GROUPED)
    late = {rule.column.name: rule.late and rule.late.column.name for rule in plan.rules if isinstance(rule, Stepwise)}
    assert late == {"t": "g", "n": None}
    [warning] = [
        warning for warning in table_warnings(plan.schema) if warning.pointer == "/options/sequence.late-horizon"
    ]
    assert "log of 'n' is kept forever: 'at' is TIMESTAMP(3)" in warning.message


def test_a_horizon_without_a_log_is_named_in_the_warnings() -> None:
    sums = {"merge-engine": "aggregation", "sequence.field": "g", "fields.n.aggregate-function": "sum"}
    plan = plan_of({**sums, "sequence.late-horizon": "10"})
    [warning] = [
        warning for warning in table_warnings(plan.schema) if warning.pointer == "/options/sequence.late-horizon"
    ]
    assert "has no effect" in warning.message
    assert not [warning for warning in table_warnings(plan_of(LISTED).schema) if "late-horizon" in warning.pointer]


def test_the_rules_say_what_comes_too_late() -> None:
    for options in (LISTED, {**LISTED, "sequence.field": "at", "sequence.late-horizon": "36 h"}):
        plan = plan_of(options)
        column = next(column for column in plan.schema.columns if column.name == "t")
        reported = "more than 36 h below the latest at" if "36 h" in str(options) else "more than 10 below the latest g"
        assert f"; records {reported}: ignored" in column_words(plan, column)
        assert depends_on_arrival(plan, next(rule for rule in plan.rules if column in rule.columns))
    assert "; records more than 10 below the latest g: ignored" in row_words(plan_of(REMOVED))
    assert all(depends_on_arrival(plan_of(REMOVED), rule) for rule in plan_of(REMOVED).rules)


def test_a_horizon_that_reaches_beyond_the_calendar_leaves_out_nothing() -> None:
    plan = plan_of({**LISTED, "sequence.field": "at", "sequence.late-horizon": "4000000 d"})
    history = [record(0, at=datetime(9999, 1, 1), t="a"), record(1, at=datetime(1, 1, 1), t="b")]
    assert finish(plan, settled(plan, state_of(plan, *history)))["t"] == "b,a"
