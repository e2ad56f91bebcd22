"""A record that changes one column of a row leaves the others as they are, whatever the table's options."""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from app.core.errors import Invalid
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.plan.records.record_decoder import KIND_MEMBER
from app.core.table.records import RowKind
from app.services.batches.row_edits import folds_in, record_of
from app.services.explaining.simulations import SimulatedRow, simulate_merge
from tests.builders import schema_of
from tests.histories import ENGINES, random_history, random_table
from tests.oracle import Change, TableCase


def orders(absent: str) -> TableCase:
    """A table with a sequence group, a sum in it, and a column outside."""
    columns = (("id", "INT"), ("at", "INT"), ("place", "STRING"), ("paid", "INT"), ("note", "STRING"))
    options = {
        "merge-engine": "partial-update",
        "fields.at.sequence-group": "place,paid",
        "fields.paid.aggregate-function": "sum",
        "record.absent-columns": absent,
    }
    return TableCase(columns, ("id",), options)


def as_json(plan: MergePlan, change: Change) -> dict[str, Any]:
    """A change as a record is posted."""
    by_name = plan.schema.by_name
    said = {name: value for name, value in change.values.items() if change.named is None or name in change.named}
    reported = {name: None if value is None else by_name[name].type.encoder(value) for name, value in said.items()}
    return reported if plan.row_kind_column else {KIND_MEMBER: change.kind, **reported}


def tried(plan: MergePlan, records: list[dict[str, Any]]) -> SimulatedRow | None:
    """What records of one key come to; None where the table refuses one of them."""
    try:
        (row,) = simulate_merge(json.dumps({"schema": plan.schema.to_json(), "records": records}).encode())
    except Invalid:
        return None
    return row


def of_one_key(plan: MergePlan, history: list[Change]) -> list[Change]:
    keys = plan.schema.primary_key
    return [one for one in history if [one.values[k] for k in keys] == [history[0].values[k] for k in keys]]


@pytest.mark.parametrize("engine", ENGINES)
@given(seed=st.integers(0, 2**32))
def test_the_columns_that_nobody_touched_stay(engine: str, seed: int) -> None:
    random = Random(seed)
    table, retracts = random_table(random, engine)
    plan = compile_plan(schema_of(table))
    history = of_one_key(plan, random_history(random, table, retracts, 20))
    records = [as_json(plan, change) for change in history]
    written = [(name, value) for name, value in random.choice(records).items() if name in plan.rule_of]
    before = tried(plan, records)
    if before is None or before.after is None or not written or plan.row_kind_column:
        return  # the table refuses one of them, or there is no row, or nothing to write
    column, value = random.choice(written)
    record = record_of(plan, before.key, {column: value}, RowKind.INSERT, before.after)
    note(f"{table}\n{records}\n{before.after}\n{record}")
    after = tried(plan, [*records, record])
    if after is not None:  # null was written where there must be a value
        assert after.after is not None
        assert others(after.after, column) == others(before.after, column)


def others(row: Mapping[str, Any], column: str) -> str:
    return repr({name: value for name, value in row.items() if name != column})


@pytest.mark.parametrize("absent", ["null", "unchanged"])
def test_a_column_is_set_and_one_that_adds_up_is_not_said_again(absent: str) -> None:
    plan = compile_plan(schema_of(orders(absent)))
    row = {"id": 1, "at": 5, "place": "x", "paid": 7, "note": "n"}
    said = {"id": 1, "at": 5, "place": "y"}
    assert record_of(plan, {"id": 1}, {"place": "y"}, RowKind.INSERT, row) == said
    assert record_of(plan, {"id": 1}, {"note": "m"}, RowKind.INSERT, row) == {"id": 1, "note": "m"}
    assert record_of(plan, {"id": 1}, {"paid": 1}, RowKind.DELETE, row) == {"_kind": "-D", "id": 1, "at": 5, "paid": 1}
    assert [folds_in(plan, name) for name in row] == [False, False, False, True, False]
