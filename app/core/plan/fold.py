"""The fold in Python: records to state rows, state rows to rows (design §3). Spark's meaning is
``spark_jobs.expressions``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import reduce
from typing import Any

from app.core.plan.merge_plan import LIVE_COLUMN, RESET_COLUMN, TOUCHED_COLUMN, Liveness, MergePlan
from app.core.rules.rule import State
from app.core.table.records import Record, RowKind


def lift(plan: MergePlan, record: Record, touched: int | None = None) -> State:
    """The state row of one record: key columns, value columns, hidden columns.

    ``touched`` is when a merge folds it (epoch seconds); None where nothing is stored.
    """
    state: State = {name: record.values[name] for name in plan.schema.primary_key}
    removal = plan.removes_on_delete and record.kind is RowKind.DELETE
    for rule in plan.rules:
        state.update(rule.empty if removal else rule.lift(record))
    if plan.liveness is Liveness.ADD:
        state[LIVE_COLUMN] = record.kind.add
    if plan.removes_on_delete:
        state[RESET_COLUMN] = removal
    if plan.dead_rows_retained is not None:
        state[TOUCHED_COLUMN] = touched
    return state


def combine(plan: MergePlan, older: Mapping[str, Any], newer: Mapping[str, Any]) -> State:
    """The state row of both; every record of ``newer`` arrived after every record of ``older``. Associative."""
    touched = _touched(plan, older, newer)
    if plan.removes_on_delete and newer[RESET_COLUMN]:
        return {**newer, **touched}
    state: State = {name: newer[name] for name in plan.schema.primary_key} | touched
    for rule in plan.rules:
        state.update(rule.combine(older, newer))
    if plan.liveness is Liveness.ADD:
        state[LIVE_COLUMN] = older[LIVE_COLUMN] or newer[LIVE_COLUMN]
    if plan.removes_on_delete:
        state[RESET_COLUMN] = older[RESET_COLUMN]
    return state


def _touched(plan: MergePlan, older: Mapping[str, Any], newer: Mapping[str, Any]) -> State:
    """The later time; none while one is not known, which the next compaction takes for its own."""
    if plan.dead_rows_retained is None:
        return {}
    times = [state[TOUCHED_COLUMN] for state in (older, newer)]
    return {TOUCHED_COLUMN: None if None in times else max(times)}


def combine_all(plan: MergePlan, states: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The state row of all ``states``, oldest first; None if there are none."""
    present = list(states)
    return reduce(lambda older, newer: combine(plan, older, newer), present) if present else None


def is_live(plan: MergePlan, state: Mapping[str, Any]) -> bool:
    """Whether the state row is a visible row."""
    return plan.liveness is Liveness.ALWAYS or bool(state[LIVE_COLUMN])


def compacted(plan: MergePlan, state: Mapping[str, Any], now: int, *, oldest: bool) -> Mapping[str, Any] | None:
    """What a compaction at ``now`` (epoch seconds) keeps of a state row; None if it forgets the row (§10 Q2).

    ``oldest``: nothing older lies below, so a hidden row may go. Where late records could meet it, it goes once its
    last record is older than ``plan.dead_rows_retained``.
    """
    kept = state
    if plan.dead_rows_retained is not None and state[TOUCHED_COLUMN] is None:
        kept = {**state, TOUCHED_COLUMN: now}
    if not oldest or is_live(plan, kept):
        return kept
    if plan.dead_rows_retained is not None:
        return kept if kept[TOUCHED_COLUMN] > forgotten_until(plan.dead_rows_retained, now) else None
    return None if plan.forgets_dead_rows else kept


def forgotten_until(retained: timedelta, now: int) -> int:
    """The time (epoch seconds) up to which hidden rows are forgotten at ``now`` when they are kept for ``retained``."""
    return now - math.ceil(retained.total_seconds())


def finish(plan: MergePlan, state: Mapping[str, Any]) -> dict[str, Any] | None:
    """The row as it is shown: ``visible_row`` with nulls replaced by read defaults (A.6); None if there is no row."""
    row = visible_row(plan, state)
    return None if row is None else _with_defaults(plan, row)


def shown_row(plan: MergePlan, folded: Mapping[str, Any]) -> dict[str, Any]:
    """The row as ``finish`` shows it, of the visible columns that Spark stored in a state row that is live.

    They are final but for what a union says of its state (§5.7) and for read defaults.
    """
    row = {column.name: folded[column.name] for column in plan.schema.columns}
    for rule in plan.unions:
        row.update(rule.finish(row))
    return _with_defaults(plan, row)


def _with_defaults(plan: MergePlan, row: dict[str, Any]) -> dict[str, Any]:
    if not plan.read_defaults:
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


def fold(plan: MergePlan, records: Iterable[Record], touched: int | None = None) -> Mapping[str, Any] | None:
    """The state row of the records of one key in arrival order; None if there are none. ``touched`` as in ``lift``."""
    return combine_all(plan, (lift(plan, record, touched) for record in records))
