"""Small compactions in this process: neighbouring runs combined and written as Spark's compactions write them
(docs/decisions/0042).

Rows whose key one run alone has pass through as whole columns; the others are combined by ``app.core.plan.fold``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from app.core.plan.fold import combine_all, compacted
from app.core.plan.merge_plan import MergePlan
from app.core.rules.row import TOUCHED_COLUMN
from app.core.table.history import Run
from app.core.table.keys import same_key
from app.core.table.records import TOKEN_COLUMN
from app.storage.images.answers import live_rows
from app.storage.layout import Warehouse
from app.storage.run_files import MANY_ROWS, TokenShared, WrittenFile, run_schema, state_table, write_run_file
from app.storage.scans.reading import WINDOW_BYTES, Rows, RunRows, TokenRange, batches_of, windows
from app.storage.tokens import shared_tokens

StateRow = Mapping[str, Any]
TOKENS_AT_ONCE: Final = 100
"""So many keys become Python's objects together, for some milliseconds, in which no other thread of the process goes
on; then whoever may stop the compaction is asked."""


def write_compacted_run(
    warehouse: Warehouse,
    table_id: str,
    run_id: str,
    plan: MergePlan,
    runs: Sequence[Run],
    now: int,
    *,
    oldest: bool,
    go_on: Callable[[], None],
) -> WrittenFile | None:
    """Combine neighbouring ``runs`` of one partition, oldest first, and write what a compaction at ``now`` (epoch
    seconds) keeps of them as the run ``run_id``; None where that is nothing. They were written under the schema of the
    plan, one that does not settle; ``oldest`` as in ``CompactionJob``. ``go_on`` is called now and then, and may raise.
    The run is durable after ``sync_runs``.

    Raises ``DamagedFile`` and ``TokenShared``; what else it raises, of values that Arrow or Python cannot hold, says
    nothing about the runs.
    """
    share = WINDOW_BYTES // len(runs)
    read = [RunRows(batches_of(warehouse, table_id, run, TokenRange(), most_bytes=share)) for run in runs]
    filled = ([rows for rows in found if rows is not None] for _, found in windows(read))
    pieces = (_compacted(plan, rows, now, oldest, go_on) for rows in filled if rows)
    return write_run_file(warehouse, table_id, run_id, plan, pieces, MANY_ROWS)


def _compacted(plan: MergePlan, found: Sequence[Rows], now: int, oldest: bool, go_on: Callable[[], None]) -> pa.Table:
    """What is kept of a window of tokens."""
    shared = shared_tokens([rows.tokens for rows in found])
    passed: list[pa.Table] = []
    others: list[Rows] = []
    for rows in found:
        if (rows.tokens[1:] == rows.tokens[:-1]).any():
            raise TokenShared(f"in a run, near {rows.tokens[0]}")
        apart = np.isin(rows.tokens, shared) | _may_change(plan, rows.batch, oldest)
        if not apart.all():
            passed.append(_as_stored(plan, rows.batch.filter(pa.array(~apart))))
        others.append(Rows(rows.tokens[apart], rows.batch.filter(pa.array(apart))))
    folded = [state_table(plan, [*_kept(plan, states, now, oldest)]) for states in _states_by_token(others, go_on)]
    whole = pa.concat_tables([*passed, *folded])
    return whole.take(pa.array(np.argsort(whole[TOKEN_COLUMN].to_numpy())))


def _states_by_token(found: Sequence[Rows], go_on: Callable[[], None]) -> Iterator[Mapping[int, Sequence[StateRow]]]:
    """The state rows of each token, oldest first, of some tokens at a time."""
    tokens = np.unique(np.concatenate([rows.tokens for rows in found]))
    for ends in np.split(tokens, range(TOKENS_AT_ONCE, len(tokens), TOKENS_AT_ONCE)) if len(tokens) else ():
        go_on()
        states: dict[int, list[StateRow]] = defaultdict(list)
        for rows in found:
            first, last = np.searchsorted(rows.tokens, ends[0]), np.searchsorted(rows.tokens, ends[-1], side="right")
            for state in rows.batch.slice(first, last - first).to_pylist():
                states[state[TOKEN_COLUMN]].append(state)
        yield states


def _may_change(plan: MergePlan, batch: pa.RecordBatch, oldest: bool) -> npt.NDArray[np.bool_]:
    """Of which rows of one run ``compacted`` may keep something else than the row, though no other run has its key, in
    a plan that does not settle.
    """
    changes = ~np.asarray(live_rows(batch, plan)) if oldest else np.zeros(len(batch), dtype=bool)
    if plan.row.retained is not None:
        changes |= np.asarray(pc.is_null(batch.column(TOUCHED_COLUMN)))
    return changes


def _as_stored(plan: MergePlan, batch: pa.RecordBatch) -> pa.Table:
    schema = run_schema(plan)
    return pa.table([batch.column(field.name).cast(field.type) for field in schema], schema=schema)


def _kept(
    plan: MergePlan, states: Mapping[int, Sequence[StateRow]], now: int, oldest: bool
) -> Iterator[tuple[int, StateRow]]:
    """The token and the state row of each key of which a compaction keeps one."""
    for token, of_key in states.items():
        if not all(same_key(_key(plan, of_key[0]), _key(plan, other)) for other in of_key[1:]):
            raise TokenShared(f"token {token}")
        combined = combine_all(plan, of_key)
        kept = None if combined is None else compacted(plan, combined, now, oldest=oldest)
        if kept is not None:
            yield token, kept


def _key(plan: MergePlan, state: StateRow) -> tuple[Any, ...]:
    return tuple(state[name] for name in plan.schema.primary_key)
