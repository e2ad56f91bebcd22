"""Rows before and after: what the runs that only one of two snapshots has make of the keys that they hold, a window of
tokens at a time, in the memory of a scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from app.core.table.history import Run
from app.files.differences import Flags, unlike
from app.files.layout import Warehouse
from app.files.named_files import files_of_run, opened_parquet
from app.files.reading import (
    WINDOW_BYTES,
    Rows,
    RunRows,
    TokenRange,
    batches_of,
    groups_in,
    joined,
    may_hold,
    only_touched,
    tokens_in,
    windows,
)
from app.files.tokens import Tokens
from app.storage.scans.merging import Source, rows_of_window
from app.storage.scans.pairing import KeyedRows, paired
from app.storage.scans.shown import rows_batch
from app.storage.scans.staged import StagedKeys

_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Difference:
    """The differences of the rows of ``keys`` neighbouring keys.

    ``before`` and ``after`` are the rows that changed, in the same order. ``unlike`` has by
    column outside the key a flag for each of them: whether it differs.
    """

    keys: int
    added: pa.RecordBatch
    removed: pa.RecordBatch
    before: pa.RecordBatch
    after: pa.RecordBatch
    unlike: Mapping[str, Flags]


@dataclass(frozen=True)
class Sides:
    """The runs of one partition in two snapshots, each oldest first."""

    table_id: str
    before: Sequence[Run]
    after: Sequence[Run]

    @property
    def apart(self) -> Sequence[Run]:
        """The runs that only one of the two snapshots has. Keys outside of them cannot have changed."""
        both = self._both
        return [run for run in (*self.before, *self.after) if run.id not in both]

    @property
    def alike(self) -> Sequence[Run]:
        """The runs that both have."""
        both = self._both
        return [run for run in self.before if run.id in both]

    @property
    def _both(self) -> set[str]:
        return {run.id for run in self.before} & {run.id for run in self.after}

    def touched(self, warehouse: Warehouse, tokens: TokenRange) -> Tokens:
        """Return the tokens in ``tokens`` whose keys may have changed, in ascending order. Raise ``DamagedFile``."""
        batches = (part for run in self.apart for part in batches_of(warehouse, self.table_id, run, tokens, ()))
        parts = [tokens_in(batch) for batch in batches]
        return np.unique(np.concatenate(parts)) if parts else _NONE

    def rows_to_read(self, warehouse: Warehouse, tokens: TokenRange, touched: Tokens) -> int:
        """Return how many state rows are in the row groups that may hold one of ``touched``. Raise ``DamagedFile``."""
        wanted = partial(may_hold, touched)
        count = 0
        for file in (file for run in self.alike for file in files_of_run(self.table_id, run)):
            with opened_parquet(warehouse, file) as parquet:
                groups = groups_in(parquet, tokens, wanted)
                count += sum(parquet.metadata.row_group(group).num_rows for group in groups)
        return count + len(touched)


def differences(source: Source, sides: Sides, tokens: TokenRange, touched: Tokens) -> Iterator[Difference]:
    """Yield the rows on both sides of the keys whose token is in ``touched`` and in the range ``tokens``, in ascending
    order of the tokens. Raise ``DamagedFile``.
    """
    runs = [*sides.apart, *sides.alike]
    apart = {run.id for run in sides.apart}
    most = WINDOW_BYTES // max(1, len(runs))

    def rows_of(run: Run) -> RunRows:
        read = partial(batches_of, source.warehouse, source.table_id, run, tokens, most_bytes=most)
        if run.id in apart:
            return RunRows(read())
        return RunRows(
            joined((only_touched(batch, touched) for batch in read(wanted=partial(may_hold, touched))), most)
        )

    for _, rows in windows([rows_of(run) for run in runs]):
        by_run = {run.id: taken for run, taken in zip(runs, rows, strict=True) if taken is not None}
        keys = _count([taken.tokens for name, taken in by_run.items() if name in apart])
        if keys:
            yield _difference(source, keys, _shown(source, sides.before, by_run), _shown(source, sides.after, by_run))


def _count(tokens: Sequence[Tokens]) -> int:
    """Return how many keys some runs hold, by their tokens; each run holds a key once, and keys that share a token are
    distinguished as far as a run holds them both.
    """
    if len(tokens) < 2:
        return sum(map(len, tokens))
    each, counts = zip(*(np.unique(token, return_counts=True) for token in tokens), strict=True)
    every = np.unique(np.concatenate(each))
    most = np.zeros(len(every), dtype=np.int64)
    for keys, count in zip(each, counts, strict=True):
        at = np.searchsorted(every, keys)
        most[at] = np.maximum(most[at], count)
    return int(most.sum())


def _shown(source: Source, side: Sequence[Run], by_run: Mapping[str, Rows]) -> KeyedRows:
    taken = [(run.schema_id, by_run[run.id]) for run in side if run.id in by_run]
    for tokens, batch in rows_of_window(source, taken, StagedKeys.none()):
        return KeyedRows(tokens, batch)  # there is one at most
    return KeyedRows(_NONE, rows_batch([], source.read))


def _difference(source: Source, keys: int, before: KeyedRows, after: KeyedRows) -> Difference:
    schema = source.shown.schema
    before_places, after_places = paired(schema, before, after)
    old, new = before.take(before_places), after.take(after_places)
    names = set(schema.primary_key)
    columns = [column for column in source.read if column.name not in names]
    differing = {column.name: unlike(old.column(column.name), new.column(column.name), column) for column in columns}
    changed = np.logical_or.reduce(list(differing.values())) if differing else np.zeros(len(before_places), dtype=bool)
    mask = pa.array(changed, pa.bool_())
    return Difference(
        keys,
        added=after.without(after_places),
        removed=before.without(before_places),
        before=old.filter(mask),
        after=new.filter(mask),
        unlike={name: flags[changed] for name, flags in differing.items()},
    )
