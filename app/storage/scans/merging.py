"""Rows of a partition merged across its runs, a window of tokens at a time (docs/decisions/0021).

Rows whose key one run alone has pass through as whole columns. What several runs and staged records have of a key is
combined by columns, as tasks do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.core.plan.merging.fold import finish
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.plan.records.row_filters import Condition
from app.core.table.history import Run
from app.core.table.keys import Key, normalised
from app.core.table.records import TOKEN_COLUMN
from app.core.table.schema import Column, TableSchema
from app.core.types.kinds import Family
from app.files.differences import Flags
from app.files.layout import Warehouse
from app.files.reading import WINDOW_BYTES, Rows, RunRows, TokenRange, batches_of, windows
from app.files.tokens import Tokens, shared_tokens
from app.kernel.runs import Window, WindowRun, combined_window
from app.storage.scans.conditions import group_filter, matching
from app.storage.scans.shown import needed_columns, passing, rows_batch, shown_batch
from app.storage.scans.staged import StagedKeys, StagedStates
from app.storage.scans.writers import text_bytes

# Window of a single run: nothing is combined, so that a window costs next to nothing.
_BYTES_OF_ONE = 4 * 2**20
_NAN = float("nan")
_NO_TOKENS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Source:
    """The table to scan, and the form of its rows: ``columns`` of the rows that meet all ``conditions``, under the plan
    ``shown``.

    ``schemas`` are those of the runs by number. State written under one of ``readable`` has the plan's meaning.
    """

    warehouse: Warehouse
    table_id: str
    shown: MergePlan
    schemas: Mapping[int, TableSchema]
    readable: frozenset[int]
    columns: tuple[Column, ...]
    conditions: tuple[Condition, ...]

    @cached_property
    def read(self) -> tuple[Column, ...]:
        """The columns that are answered or asked about."""
        filtered = (condition.column for condition in self.conditions)
        return tuple({column.name: column for column in (*self.columns, *filtered)}.values())


@dataclass(frozen=True)
class Part:
    """Neighbouring rows by token: the token of each, and the columns that are answered."""

    tokens: Tokens
    batch: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def text_bytes(self) -> int:
        """About how many bytes the rows take in an answer."""
        return text_bytes(self.batch)

    @property
    def last_token(self) -> int:
        """The token of the last row."""
        return int(self.tokens[-1])

    def of_token(self, token: int) -> int:
        """Return how many rows have the token."""
        return int(np.count_nonzero(self.tokens == token))

    def first(self, count: int) -> Part:
        """Return the first ``count`` rows."""
        return Part(self.tokens[:count], self.batch.slice(0, count))


def rows_of_partition(
    source: Source, runs: Sequence[Run], staged: StagedKeys, first: int, skip: int, last: int
) -> Iterator[Part]:
    """Yield the rows of a partition, whose ``runs`` are given oldest first, from the token ``first`` to ``last``
    without the first ``skip`` of the token ``first``. A part may be empty: then none of the
    rows that were read for it meets the conditions. Raise ``DamagedFile``.
    """
    walked = _partition(source, runs, staged.within(first, last), TokenRange(first, last))
    for tokens, batch in _behind(_met(source, walked), first, skip):
        yield Part(tokens, batch)


_Walked = Iterator[tuple[Tokens, pa.RecordBatch]]


def _met(source: Source, walked: _Walked) -> _Walked:
    """Yield the rows that meet the conditions, with the columns that are answered."""
    names = [column.name for column in source.columns]
    for tokens, batch in walked:
        if not source.conditions:
            yield tokens, batch
            continue
        met = pc.fill_null(matching(batch, source.conditions), False)
        yield tokens[np.asarray(met)], batch.select(names).filter(met)


def _behind(walked: _Walked, first: int, skip: int) -> _Walked:
    """Without the first rows of the token at which the source continues."""
    for tokens, batch in walked:
        passed = min(skip, int(np.searchsorted(tokens, np.int64(first), side="right"))) if skip else 0
        skip -= passed
        yield tokens[passed:], batch.slice(passed)
        if len(tokens) and tokens[-1] > first:
            skip = 0


def _partition(source: Source, runs: Sequence[Run], staged: StagedKeys, tokens: TokenRange) -> _Walked:
    selection = _alone(source, runs, staged)
    share = WINDOW_BYTES // len(runs) if len(runs) > 1 else _BYTES_OF_ONE
    read = [RunRows(batches_of(source.warehouse, source.table_id, run, tokens, *selection, share)) for run in runs]
    for bound, rows in windows(read):
        now, staged = staged.split(bound)
        stored = [(run.schema_id, taken) for run, taken in zip(runs, rows, strict=True) if taken is not None]
        for some, their in _pieces(stored, now):
            yield from rows_of_window(source, some, their)


FoundRows = Sequence[tuple[int, Rows]]


def _pieces(stored: FoundRows, staged: StagedKeys) -> Iterator[tuple[FoundRows, StagedKeys]]:
    """Yield a window cut into several where more is staged than one may take."""
    for bound in [*staged.pieces(WINDOW_BYTES), None]:
        now, staged = staged.split(bound)
        halves = [(number, rows.split(bound)) for number, rows in stored]
        yield [(number, before) for number, (before, _) in halves if before is not None], now
        stored = [(number, after) for number, (_, after) in halves if after is not None]


def _alone(source: Source, runs: Sequence[Run], staged: StagedKeys) -> tuple[Any, Any]:
    """Return the columns and row groups to read: all, unless the shown rows come from a single run."""
    if len(runs) != 1 or len(staged.tokens) or runs[0].schema_id not in source.readable:
        return None, None
    written, shown = compile_plan(source.schemas[runs[0].schema_id]), source.shown
    columns = needed_columns(written, source.read)
    return columns, group_filter(source.conditions, written, shown)


def rows_of_window(source: Source, stored: FoundRows, staged: StagedStates) -> _Walked:
    """Yield all rows of a window, by token; those of one token in the order of their runs, the combined ones last.
    ``stored`` is what each run has in it, oldest first, with the number of the run's schema.
    """
    shared = _shared([rows.tokens for _, rows in stored], staged.tokens)
    pieces: list[tuple[Tokens, pa.RecordBatch]] = []
    window: list[WindowRun] = []
    for number, rows in stored:
        plan = compile_plan(source.schemas[number])
        apart = _apart(plan, rows, shared) if number in source.readable else np.ones(len(rows.tokens), dtype=bool)
        if not apart.all():
            pieces.append(_passed(source, plan, rows, ~apart))
        if apart.any():
            window.append(WindowRun(plan, Rows(rows.tokens[apart], rows.batch.filter(pa.array(apart)))))
    pieces += _combined(source, window, staged)
    yield from _in_order([piece for piece in pieces if len(piece[0])])


def _shared(tokens: Sequence[Tokens], staged: Tokens) -> Tokens:
    """Return the tokens that several runs have, and those that are staged."""
    return staged if len(tokens) < 2 else np.union1d(shared_tokens(tokens), staged)


def _apart(plan: MergePlan, rows: Rows, tokens: Tokens) -> Flags:
    """Return which rows do not show by themselves, or have one of the ascending ``tokens``."""
    unsettled: Flags = ~np.asarray(passing(rows.batch, plan))
    if not len(tokens):
        return unsettled
    at = np.minimum(np.searchsorted(tokens, rows.tokens), len(tokens) - 1)
    return np.asarray((tokens[at] == rows.tokens) | unsettled)


def _passed(source: Source, plan: MergePlan, rows: Rows, passes: Flags) -> tuple[Tokens, pa.RecordBatch]:
    tokens, batch = rows.tokens, rows.batch
    if not passes.all():
        tokens, batch = tokens[passes], batch.filter(pa.array(passes))
    live, shown = shown_batch(batch, plan, source.shown, source.read)
    return tokens[np.asarray(live)], shown


def keys_of(schema: TableSchema, states: Sequence[Mapping[str, Any]]) -> Iterator[Key]:
    """Yield the key of each state."""
    floating = has_floating_key(schema)
    for state in states:
        key = tuple([state[name] for name in schema.primary_key])
        yield one_nan(tuple(map(normalised, schema.key_columns, key))) if floating else key


def has_floating_key(schema: TableSchema) -> bool:
    """Return whether a key may hold NaN, or a zero of either sign."""
    return any(column.type.family is Family.FLOATING for column in schema.key_columns)


def one_nan(key: Key) -> Key:
    """Return the key with one and the same NaN, as which a dictionary finds it."""
    return tuple(_NAN if value != value else value for value in key)


def _combined(source: Source, window: Window, staged: StagedStates) -> _Walked:
    """Yield what the runs of a window and the staged records make of their keys."""
    plan = source.shown
    if len(staged.tokens):
        window = [*window, WindowRun(plan, _rows(staged.states(plan)))]
    if not window:
        return
    rows = _rows(combined_window(plan, window))
    unsettled = _apart(plan, rows, _NO_TOKENS)
    yield _passed(source, plan, rows, ~unsettled)
    states = rows.batch.filter(pa.array(unsettled)).to_pylist()
    finished = [(state[TOKEN_COLUMN], finish(plan, state)) for state in states]
    shown = [(token, row) for token, row in finished if row is not None]
    tokens = np.array([token for token, _ in shown], dtype=np.int64)
    yield tokens, rows_batch([row for _, row in shown], source.read)


def _rows(states: pa.Table) -> Rows:
    [batch] = states.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=states.schema)]
    return Rows(batch.column(TOKEN_COLUMN).to_numpy(), batch)


def _in_order(pieces: Sequence[tuple[Tokens, pa.RecordBatch]]) -> _Walked:
    if len(pieces) < 2:
        yield from pieces
        return
    tokens = np.concatenate([tokens for tokens, _ in pieces])
    order = np.argsort(tokens, kind="stable")
    whole = pa.concat_batches([batch for _, batch in pieces])
    yield tokens[order], whole.take(pa.array(order))
