"""State rows of runs as tasks read them: windows of tokens over several runs, as state of one plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from app.core.plan.merging.evolution import (
    RunSteps,
    carried_over,
    combined_runs,
    converted,
    read_by_columns,
    sources_of,
)
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.table.history import Run
from app.core.table.records import TOKEN_COLUMN
from app.files.layout import Warehouse
from app.files.reading import Rows, RunRows, TokenRange, batches_of, joined, may_hold, only_touched, windows
from app.files.run_files import run_schema
from app.files.tokens import Tokens
from app.kernel.blame import blamed_states
from app.kernel.fold import combined, fold_of
from app.kernel.keys import grouped
from app.kernel.tasks import Task
from app.kernel.values import values_array

# Of all runs together, in memory; a task holds some 25 times as much.
WINDOW_BYTES: Final = 6 * 2**20
_COLUMN_BYTES: Final = 16 * 2**10  # of a column with fewer in a window, each call of Arrow takes longer than its values
_MOST_WINDOW_BYTES: Final = 16 * 2**20
_LEAST_SHARES: Final = 4


@dataclass(frozen=True, eq=False)
class WindowRun:
    """The part of a run in a window: the plan of its schema, and its rows by token."""

    plan: MergePlan
    rows: Rows


Window = Sequence[WindowRun | None]
"""For each run of a task what it has in a window of tokens; None for nothing."""


def windows_of(warehouse: Warehouse, task: Task, touched: Tokens | None = None) -> Iterator[Window]:
    """Return windows of tokens over the task's runs, by token; with ``touched`` (ascending) only of these tokens.

    Raise ``DamagedFile``.
    """
    most = min(_MOST_WINDOW_BYTES, max(WINDOW_BYTES, _COLUMN_BYTES * len(task.schema.columns)))
    rows, least = max(1, sum(run.rows for run in task.runs)), most // (_LEAST_SHARES * max(1, len(task.runs)))
    tokens = TokenRange(task.first_token, task.last_token)
    read = []
    for run in task.runs:
        share = max(least, most * run.rows // rows)
        batches = batches_of(
            warehouse,
            task.table_id,
            run,
            tokens,
            wanted=None if touched is None else partial(may_hold, touched),
            most_bytes=share,
        )
        if touched is not None:
            batches = joined((only_touched(batch, touched) for batch in batches), share)
        read.append(RunRows(batches, share // 2))
    plans = [compile_plan(task.schema_at(run.schema_id)) for run in task.runs]
    for _, window in windows(read):
        if any(rows is not None for rows in window):
            yield [None if rows is None else WindowRun(plan, rows) for plan, rows in zip(plans, window, strict=True)]


def tokens_in_runs(warehouse: Warehouse, task: Task, runs: Sequence[Run]) -> Tokens:
    """Return the distinct tokens of ``runs`` in the task's range, ascending. Raise ``DamagedFile``."""
    tokens = TokenRange(task.first_token, task.last_token)
    of_runs = [
        batch.column(TOKEN_COLUMN).to_numpy()
        for run in runs
        for batch in batches_of(warehouse, task.table_id, run, tokens, ())
    ]
    return np.unique(np.concatenate([np.empty(0, np.int64), *of_runs]))


def combined_window(plan: MergePlan, window: Window) -> pa.Table:
    """Return the state row of each key of a window under ``plan``, by token."""
    present = [(run.plan, run.rows) for run in window if run is not None]
    return combined_runs(plan, present, _WindowSteps()) if present else run_schema(plan).empty_table()


class _WindowSteps(RunSteps[Rows, pa.Table]):
    """Converts the rows of a window to a plan, by whole columns if types do not change."""

    def read(self, written: MergePlan, run: Rows, plan: MergePlan) -> pa.Table:
        rows = pa.Table.from_batches([run.batch])
        if written.schema is not plan.schema and not read_by_columns(written, plan):
            states = [converted(state, written, plan) for state in _padded(written, rows).to_pylist()]
            return states_table(plan, run.tokens, states)
        sources = {name: source for name, (source, _) in sources_of(written, plan).items()}
        columns = [
            _stored(rows, TOKEN_COLUMN if field.name == TOKEN_COLUMN else sources.get(field.name), field.type)
            for field in run_schema(plan)
        ]
        return pa.table(columns, schema=run_schema(plan))

    def combined(self, plan: MergePlan, rows: Sequence[pa.Table]) -> pa.Table:
        together = pa.concat_tables(rows).combine_chunks()
        groups = grouped(plan.schema, together.column(TOKEN_COLUMN).to_numpy(), together)
        with blamed_states(plan, groups, together):
            return combined(fold_of(plan.schema), groups, together)

    def carried_over(self, old: MergePlan, new: MergePlan, rows: pa.Table) -> pa.Table:
        tokens = rows.column(TOKEN_COLUMN).to_numpy()
        states = [carried_over(state, old, new) for state in rows.to_pylist()]
        has_state = np.array([state is not None for state in states], dtype=bool)
        return states_table(new, tokens[has_state], [state for state in states if state is not None])


def _padded(plan: MergePlan, rows: pa.Table) -> pa.Table:
    """Return rows with the columns that runs of an earlier release lack, as null."""
    columns = [_stored(rows, field.name, field.type) for field in run_schema(plan)]
    return pa.table(columns, schema=run_schema(plan))


def _stored(rows: pa.Table, name: str | None, data_type: pa.DataType) -> pa.Array:
    place = -1 if name is None else rows.schema.get_field_index(name)  # a list of all names is slow in broad tables
    if place < 0:
        return pa.nulls(len(rows), data_type)
    return rows.column(place).cast(data_type).combine_chunks()


def states_table(plan: MergePlan, tokens: Tokens, states: Sequence[object]) -> pa.Table:
    """Return state rows, each with its token."""
    schema = run_schema(plan)
    columns = []
    for field in list(schema)[:-1]:
        values = [state.get(field.name) for state in states]  # type: ignore[attr-defined]  # mappings
        columns.append(values_array(field.name, values, field.type))
    return pa.table([*columns, pa.array(tokens)], schema=schema)
