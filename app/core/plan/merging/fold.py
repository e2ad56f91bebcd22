"""The fold: records to state rows, state rows to rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.core.plan.merging.merge_plan import MergePlan
from app.core.rules.rule import State
from app.core.table.records import Record


def lift(plan: MergePlan, record: Record, touched: int | None = None) -> State:
    """Return the state row of one record: key columns, value columns, hidden columns.

    ``touched`` is when a merge folds it (epoch seconds); None if nothing is stored.
    """
    state: State = {name: record.values[name] for name in plan.schema.primary_key}
    removal = plan.row.removes(record)
    for rule in plan.rules:
        state.update(rule.empty if removal else rule.lift(record))
    return state | plan.row.lift(record, touched)


def combine(plan: MergePlan, older: Mapping[str, Any], newer: Mapping[str, Any]) -> State:
    """Return the state row of both; every record of ``newer`` arrived after every record of ``older``. Associative."""
    return dict(_combined(plan, [older, newer]))


def combine_all(plan: MergePlan, states: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the state row of all ``states``, oldest first, folded once; None if there are none."""
    present = list(states)
    return _combined(plan, present) if present else None


def _combined(plan: MergePlan, states: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    if len(states) == 1:
        return states[0]
    row = states[0]
    for newer in states[1:]:
        row = plan.row.combine(row, newer)
    newest = states[-1]
    state: State = {name: newest[name] for name in plan.schema.primary_key}
    last_end = max((place for place, stored in enumerate(states) if plan.row.ends(stored)), default=0)
    for rule in plan.rules:
        state.update(rule.combine_all(states[last_end:]))
    return {**state, **row}


def compacted(plan: MergePlan, state: Mapping[str, Any], now: int, *, oldest: bool) -> Mapping[str, Any] | None:
    """Return the state row that a compaction at ``now`` (epoch seconds) stores; None if it forgets the row (Q2).

    ``oldest``: there is no older run, so hidden rows may be dropped, and state that can no longer change is settled.
    """
    aged = {**state, **plan.row.aged(state, now)}
    if not oldest:
        return aged
    settled = {name: value for rule in plan.rules for name, value in rule.settled(aged).items()}
    return {**aged, **settled} if plan.row.stays(aged, now) else None


def finish(plan: MergePlan, state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the row as it is shown: ``visible_row`` with nulls replaced by read defaults; None if there is no
    row.
    """
    row = visible_row(plan, state)
    return None if row is None else _with_defaults(plan, row)


def shown_row(plan: MergePlan, folded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row as ``finish`` shows it, of the visible columns that a run stores in a state row that is live.

    These columns are final; only unions and read defaults are applied.
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
    """Return the folded row in column order; None if there is no row."""
    if not plan.row.is_live(state):
        return None
    visible: dict[str, Any] = {name: state[name] for name in plan.schema.primary_key}
    for rule in plan.rules:
        visible.update(rule.finish(state))
    return {column.name: visible[column.name] for column in plan.schema.columns}


def fold(plan: MergePlan, records: Iterable[Record], touched: int | None = None) -> Mapping[str, Any] | None:
    """Return the state row of the records of one key in arrival order; None if there are none. ``touched`` as in
    ``lift``.
    """
    return combine_all(plan, (lift(plan, record, touched) for record in records))
