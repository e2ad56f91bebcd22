"""State rows of runs by token, a window of tokens over all runs at a time: what is in memory is a batch or two of each
run, whatever the table's size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from app.core.table.history import Run
from app.core.table.records import TOKEN_COLUMN
from app.storage.layout import Warehouse
from app.storage.named_files import file_of_run, opened_parquet
from app.storage.tokens import Tokens

BATCH_ROWS = 65_536
LEAST_TOKEN, MOST_TOKEN = -(2**63), 2**63 - 1
# Whether a row group may hold what is looked for, by its metadata.
Wanted = Callable[[pq.RowGroupMetaData], bool]


@dataclass(frozen=True)
class TokenRange:
    """The tokens from ``first`` to ``last``, both included."""

    first: int = LEAST_TOKEN
    last: int = MOST_TOKEN

    def meets(self, low: int, high: int) -> bool:
        """Whether it has a token from ``low`` to ``high``."""
        return low <= self.last and self.first <= high


@dataclass(frozen=True)
class Rows:
    """Neighbouring rows of one run, and the token of each in ascending order."""

    tokens: Tokens
    batch: pa.RecordBatch


class RunRows:
    """The rows of one run, read as they are taken."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rows: Rows | None = None
        self.ended = False

    def fill(self) -> None:
        """Have rows of two tokens at least, unless the run ends before: those of the last one may go on."""
        while not self.ended and (self._rows is None or self._rows.tokens[0] == self._rows.tokens[-1]):
            following = next(self._batches, None)
            if following is None:
                self.ended = True
            elif following.num_rows:
                known = [] if self._rows is None else [self._rows.batch]
                self._rows = _with_tokens(pa.concat_batches([*known, following]))

    @property
    def bound(self) -> int | None:
        """The token before which all rows are here; None where the run has no more."""
        return None if self.ended or self._rows is None else int(self._rows.tokens[-1])

    def take(self, bound: int | None) -> Rows | None:
        """The rows before the token ``bound``, all for None; None if there are none."""
        rows = self._rows
        if rows is None:
            return None
        count = len(rows.tokens) if bound is None else int(np.searchsorted(rows.tokens, np.int64(bound)))
        rest = Rows(rows.tokens[count:], rows.batch.slice(count))
        self._rows = rest if len(rest.tokens) else None
        return Rows(rows.tokens[:count], rows.batch.slice(0, count)) if count else None


Window = tuple[int | None, Sequence[Rows | None]]


def windows(runs: Sequence[RunRows]) -> Iterator[Window]:
    """Windows of tokens over all ``runs``, in ascending order: the token that ends the window (None for the last one),
    and what each run has in it. All rows of a token are in one window.
    """
    while True:
        for run in runs:
            run.fill()
        bounds = [run.bound for run in runs]
        known = [bound for bound in bounds if bound is not None]
        bound = min(known, default=None)
        yield bound, [run.take(bound) for run in runs]
        if bound is None:
            return


def batches_of(
    warehouse: Warehouse,
    table_id: str,
    run: Run,
    tokens: TokenRange,
    columns: Sequence[str] | None = None,
    wanted: Wanted | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a run whose token is in ``tokens``, by token; of the row groups that are ``wanted``.

    ``columns`` are the least that is read beside the token. Raises ``DamagedFile``.
    """
    names = None if columns is None else [TOKEN_COLUMN, *columns]
    for file in run.files:
        if not tokens.meets(file.min_token, file.max_token):
            continue
        with opened_parquet(warehouse, file_of_run(table_id, run.id, file)) as parquet:
            groups = list(_groups(parquet, tokens, wanted))
            for batch in parquet.iter_batches(BATCH_ROWS, row_groups=groups, columns=names):
                yield _within(batch, tokens)


def _groups(parquet: pq.ParquetFile, tokens: TokenRange, wanted: Wanted | None) -> Iterator[int]:
    place = parquet.schema.names.index(TOKEN_COLUMN)
    for group in range(parquet.num_row_groups):
        metadata = parquet.metadata.row_group(group)
        known = metadata.column(place).statistics
        inside = known is None or not known.has_min_max or tokens.meets(known.min, known.max)
        if inside and (wanted is None or wanted(metadata)):
            yield group


def _with_tokens(batch: pa.RecordBatch) -> Rows:
    return Rows(np.asarray(batch.column(TOKEN_COLUMN).to_numpy(zero_copy_only=False), dtype=np.int64), batch)


def _within(batch: pa.RecordBatch, tokens: TokenRange) -> pa.RecordBatch:
    if tokens == TokenRange():
        return batch
    own = _with_tokens(batch).tokens
    start = int(np.searchsorted(own, np.int64(tokens.first)))
    end = int(np.searchsorted(own, np.int64(tokens.last), side="right"))
    return batch.slice(start, end - start)
