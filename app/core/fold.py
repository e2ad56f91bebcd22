"""The fold in Python: records to state rows, state rows to rows (design §3). Spark's meaning is
``spark_jobs.expressions``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

from app.core.merge_plan import LIVE_COLUMN, RESET_COLUMN, Liveness, MergePlan
from app.core.records import Record, RowKind
from app.core.rules import State


def lift(plan: MergePlan, record: Record) -> State:
    """The state row of one record: key columns, value columns, hidden columns."""
    state: State = {name: record.values[name] for name in plan.schema.primary_key}
    removal = plan.removes_on_delete and record.kind is RowKind.DELETE
    for rule in plan.rules:
        state.update(rule.empty if removal else rule.lift(record))
    if plan.liveness is Liveness.ADD:
        state[LIVE_COLUMN] = record.kind.add
    if plan.removes_on_delete:
        state[RESET_COLUMN] = removal
    return state


def combine(plan: MergePlan, older: Mapping[str, Any], newer: Mapping[str, Any]) -> State:
    """The state row of both; every record of ``newer`` arrived after every record of ``older``. Associative."""
    if plan.removes_on_delete and newer[RESET_COLUMN]:
        return dict(newer)
    state: State = {name: newer[name] for name in plan.schema.primary_key}
    for rule in plan.rules:
        state.update(rule.combine(older, newer))
    if plan.liveness is Liveness.ADD:
        state[LIVE_COLUMN] = older[LIVE_COLUMN] or newer[LIVE_COLUMN]
    if plan.removes_on_delete:
        state[RESET_COLUMN] = older[RESET_COLUMN]
    return state


def combine_all(plan: MergePlan, states: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The state row of all ``states``, oldest first; None if there are none."""
    present = list(states)
    return reduce(lambda older, newer: combine(plan, older, newer), present) if present else None


def is_live(plan: MergePlan, state: Mapping[str, Any]) -> bool:
    """Whether the state row is a visible row."""
    return plan.liveness is Liveness.ALWAYS or bool(state[LIVE_COLUMN])


def finish(plan: MergePlan, state: Mapping[str, Any]) -> dict[str, Any] | None:
    """The row as it is shown: ``visible_row`` with nulls replaced by read defaults (A.6); None if there is no row."""
    row = visible_row(plan, state)
    if row is None or not plan.read_defaults:
        return row
    return {name: plan.read_defaults.get(name) if value is None else value for name, value in row.items()}


def visible_row(plan: MergePlan, state: Mapping[str, Any]) -> dict[str, Any] | None:
    """The folded row in column order; None if there is no row."""
    if not is_live(plan, state):
        return None
    visible: dict[str, Any] = {name: state[name] for name in plan.schema.primary_key}
    for rule in plan.rules:
        visible.update(rule.finish(state))
    return {column.name: visible[column.name] for column in plan.schema.columns}


def fold(plan: MergePlan, records: Iterable[Record]) -> Mapping[str, Any] | None:
    """The state row of the records of one key in arrival order; None if there are none."""
    return combine_all(plan, (lift(plan, record) for record in records))
