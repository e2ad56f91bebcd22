"""The changes of rows by new runs: before and after of each of their keys (docs/semantics.md, Changelogs)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.rules.row import LIVE_COLUMN
from app.core.table.named_columns import named_words
from app.core.table.records import ARRIVAL_COLUMN, KIND_COLUMN, TOKEN_COLUMN, RowKind
from app.core.table.schema import TableSchema
from app.core.types.datatype import DataType
from app.core.types.kinds import Kind
from app.files.arrow import arrow_field, hidden_field
from app.files.differences import unlike
from app.files.layout import Warehouse
from app.kernel.columns import Places, Truths
from app.kernel.keys import Groups, grouped
from app.kernel.runs import Window, combined_window, tokens_in_runs, windows_of
from app.kernel.tasks import Task

_NONE = -1  # the place of a missing row


def changes_of(warehouse: Warehouse, task: Task) -> Iterator[tuple[int, pa.Table]]:
    """Return the changes of the task's newer runs to the older ones, and how many rows were read.

    A change is its row kind and the visible columns; they come by token and key, -U before +U.
    """
    plan = compile_plan(task.schema)
    touched = tokens_in_runs(warehouse, task, task.runs[len(task.runs) - task.newer :])
    for window in windows_of(warehouse, task, touched):
        if any(run is not None for run in window[len(window) - task.newer :]):
            read = sum(len(run.rows.tokens) for run in window if run is not None)
            yield read, _changes_in(plan, task, window)


def _changes_in(plan: MergePlan, task: Task, window: Window) -> pa.Table:
    older = window[: len(window) - task.newer]
    before, after = combined_window(plan, older), combined_window(plan, window)
    together = pa.concat_tables([before, after]).combine_chunks()
    groups = grouped(plan.schema, together.column(TOKEN_COLUMN).to_numpy(), together)
    live = _live(together)
    numbers = groups.numbers
    old, new = (np.full(len(groups.starts), _NONE) for _ in range(2))
    old[numbers[: len(before)]] = np.where(live[: len(before)], np.arange(len(before)), _NONE)
    new[numbers[len(before) :]] = np.where(live[len(before) :], np.arange(len(before), len(together)), _NONE)
    return _rows(plan.schema, together, _chosen(plan, task, together, old, new))


def _chosen(
    plan: MergePlan, task: Task, rows: pa.Table, old: Places, new: Places
) -> list[tuple[RowKind, Places, Places]]:
    """Return for each kind the numbers of the keys with such a change, and the places of their rows."""
    both = (old != _NONE) & (new != _NONE)
    if task.row_deduplicate:
        both[both] = _differ(plan, task, rows, old[both], new[both])
    by_kind = {
        RowKind.INSERT: ((old == _NONE) & (new != _NONE), new),
        RowKind.UPDATE_BEFORE: (both, old),
        RowKind.UPDATE_AFTER: (both, new),
        RowKind.DELETE: ((old != _NONE) & (new == _NONE), old),
    }
    return [(kind, np.flatnonzero(which), places[which]) for kind, (which, places) in by_kind.items()]


def _differ(plan: MergePlan, task: Task, rows: pa.Table, old: Places, new: Places) -> Truths:
    unequal = np.zeros(len(old), dtype=bool)
    for column in plan.schema.value_columns:
        if column.name not in task.ignored_fields:
            values = rows.column(column.name).combine_chunks()
            unequal |= unlike(values.take(pa.array(old)), values.take(pa.array(new)), column)
    return unequal


def _rows(schema: TableSchema, rows: pa.Table, chosen: list[tuple[RowKind, Places, Places]]) -> pa.Table:
    numbers = np.concatenate([keys for _, keys, _ in chosen])
    kinds = np.repeat([int(kind) for kind, _, _ in chosen], [len(keys) for _, keys, _ in chosen]).astype(np.int8)
    places = np.concatenate([row_places for _, _, row_places in chosen])
    order = np.lexsort((kinds, numbers))
    taken = rows.take(pa.array(places[order]))
    return _changes(schema, taken, pa.array(kinds[order]))


def _changes(schema: TableSchema, rows: pa.Table, kinds: pa.Array) -> pa.Table:
    hidden = [hidden_field(KIND_COLUMN, DataType(Kind.TINYINT)), hidden_field(TOKEN_COLUMN, DataType(Kind.BIGINT))]
    words = [hidden_field(word, DataType(Kind.BIGINT)) for word in named_words(schema) if word in rows.column_names]
    fields = [*(arrow_field(column) for column in schema.columns), *words, *hidden]
    columns = [kinds if field.name == KIND_COLUMN else rows.column(field.name).cast(field.type) for field in fields]
    return pa.table(columns, schema=pa.schema(fields))


def _live(rows: pa.Table) -> Truths:
    if LIVE_COLUMN not in rows.column_names:
        return np.ones(len(rows), dtype=bool)
    return np.asarray(pc.fill_null(rows.column(LIVE_COLUMN), False))


def input_changes(plan: MergePlan, groups: Groups, records: pa.Table) -> pa.Table:
    """Return the posted records, by key and merge order."""
    order = groups.order.copy()
    if not plan.order.by_arrival:
        several = np.repeat(groups.counts > 1, groups.counts)
        ranks = _ranks(plan, records, order[several])
        keys = np.repeat(np.arange(len(groups.starts)), groups.counts)[several]
        by_rank = sorted(range(len(ranks)), key=lambda place: (keys[place], ranks[place]))
        order[several] = order[several][by_rank]
    taken = records.take(pa.array(order)).append_column(TOKEN_COLUMN, pa.array(groups.tokens[order]))
    return _changes(plan.schema, taken, taken.column(KIND_COLUMN).combine_chunks())


def _ranks(plan: MergePlan, records: pa.Table, places: Places) -> list[tuple[Any, ...]]:
    names = [field.column.name for field in plan.order.fields]
    rows = records.select([*names, KIND_COLUMN, ARRIVAL_COLUMN]).take(pa.array(places)).to_pylist()
    return [(*plan.order.rank(row, RowKind(row[KIND_COLUMN]).add), row[ARRIVAL_COLUMN]) for row in rows]
