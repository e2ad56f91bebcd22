"""State rows of runs by token, a window of tokens over all runs at a time: memory is about ``WINDOW_BYTES``, for any
size of table and rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from app.core.table.history import Run
from app.core.table.records import TOKEN_COLUMN
from app.core.table.upkeep.damage import NamedFile
from app.files.layout import Warehouse
from app.files.named_files import file_of_run, opened_parquet
from app.files.tokens import Tokens

BATCH_ROWS = 65_536
# Size of a window of all runs together.
WINDOW_BYTES = 16 * 2**20
_CELL = 5  # bytes of a value in memory, a null included
_WORST = 4  # times as much as expected
LEAST_TOKEN, MOST_TOKEN = -(2**63), 2**63 - 1
# Whether a row group may have matching rows, by its metadata.
Wanted = Callable[[pq.RowGroupMetaData], bool]


@dataclass(frozen=True)
class TokenRange:
    """The tokens from ``first`` to ``last``, both included."""

    first: int = LEAST_TOKEN
    last: int = MOST_TOKEN

    @classmethod
    def from_token(cls, token: int) -> TokenRange:
        """Return one token alone."""
        return cls(token, token)

    def meets(self, low: int, high: int) -> bool:
        """Return whether the range overlaps that from ``low`` to ``high``."""
        return low <= self.last and self.first <= high


@dataclass(frozen=True)
class Rows:
    """Neighbouring rows of one run, and the token of each in ascending order."""

    tokens: Tokens
    batch: pa.RecordBatch

    def split(self, bound: int | None) -> tuple[Rows | None, Rows | None]:
        """Return the rows before the token ``bound`` (all for None) and the others; None for no rows."""
        count = len(self.tokens) if bound is None else int(np.searchsorted(self.tokens, np.int64(bound)))
        before = Rows(self.tokens[:count], self.batch.slice(0, count)) if count else None
        return before, Rows(self.tokens[count:], self.batch.slice(count)) if count < len(self.tokens) else None


class RunRows:
    """The rows of one run, read on demand. At least ``least_bytes`` are buffered: the run that ends first ends the
    window of all.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], least_bytes: int = 0) -> None:
        self._batches = batches
        self._least_bytes = least_bytes
        self._rows: Rows | None = None
        self.ended = False

    def fill(self) -> None:
        """Buffer rows of at least two tokens, unless the run ends: more rows of the last token may follow."""
        known = [] if self._rows is None else [self._rows.batch]
        pieces = list(known)
        while not self.ended and self._are_few(pieces):
            following = next(self._batches, None)
            if following is None:
                self.ended = True
            elif following.num_rows:
                pieces.append(following)
        if len(pieces) > len(known):
            self._rows = rows_in(pieces)

    def _are_few(self, pieces: Sequence[pa.RecordBatch]) -> bool:
        if sum(piece.nbytes for piece in pieces) < self._least_bytes or not pieces:
            return True
        return bool(pieces[0].column(TOKEN_COLUMN)[0] == pieces[-1].column(TOKEN_COLUMN)[-1])

    @property
    def bound(self) -> int | None:
        """The token before which all rows are buffered; None if the run has no more."""
        return None if self.ended or self._rows is None else int(self._rows.tokens[-1])

    def take(self, bound: int | None) -> Rows | None:
        """Return the rows before the token ``bound``, all for None; None if there are none."""
        if self._rows is None:
            return None
        taken, self._rows = self._rows.split(bound)
        return taken


Window = tuple[int | None, Sequence[Rows | None]]


def windows(runs: Sequence[RunRows]) -> Iterator[Window]:
    """Yield windows of tokens over all ``runs``, in ascending order: the token that ends the window (None for the last
    one), and the rows of each run in it. All rows of a token are in one window.
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
    most_bytes: int = WINDOW_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a run whose token is in ``tokens``, by token, about ``most_bytes`` at a time; of the row groups
    that are ``wanted``.

    ``columns`` are read in addition to the token. Raise ``DamagedFile``.
    """
    names = None if columns is None else [TOKEN_COLUMN, *columns]
    for file in run.files:
        if not tokens.meets(file.min_token, file.max_token):
            continue
        named = file_of_run(table_id, run.id, file)
        with opened_parquet(warehouse, named) as parquet:
            for group in groups_in(parquet, tokens, wanted):
                rows = rows_at_once(warehouse, named, parquet.metadata, group, names, most_bytes)
                every = parquet.iter_batches(rows, row_groups=[group], columns=names)
                read = takewhile(lambda batch: _begins_within(batch, tokens), every)
                yield from joined((_within(batch, tokens) for batch in read), most_bytes)


def rows_at_once(
    warehouse: Warehouse,
    file: NamedFile,
    metadata: pq.FileMetaData,
    group: int,
    names: Sequence[str] | None,
    most_bytes: int,
) -> int:
    """Return ``fitting_rows`` of a row group of a file."""
    longest = partial(_longest, warehouse, file, group)
    return fitting_rows(metadata.row_group(group), names, most_bytes, longest)


def fitting_rows(
    group: pq.RowGroupMetaData,
    names: Sequence[str] | None,
    most_bytes: int,
    longest: Callable[[Sequence[str]], int],
) -> int:
    """Return how many rows of the columns ``names`` (of all for None) to read, so that they take about ``most_bytes``,
    never much more: every row may repeat the longest value of a dictionary. ``longest`` returns the length of a row
    with the longest value in each of some columns.
    """
    chunks = [group.column(number) for number in range(group.num_columns)]
    if names is not None:
        wanted = set(names)
        chunks = [chunk for chunk in chunks if {chunk.path_in_schema, chunk.path_in_schema.split(".")[0]} & wanted]
    stored = sum(chunk.total_uncompressed_size for chunk in chunks) // max(1, group.num_rows)
    expected: int = min(BATCH_ROWS, group.num_rows, most_bytes // (stored + _CELL * len(chunks)))
    repeating = {chunk.path_in_schema: chunk.total_uncompressed_size for chunk in chunks if _may_repeat(chunk)}
    worst = _WORST * most_bytes
    if expected * sum(repeating.values()) <= worst:
        return max(1, expected)
    inside = sum(size for path, size in repeating.items() if "." in path)
    texts = longest([path for path in repeating if "." not in path])
    most: int = min(expected, worst // max(1, inside + texts))
    return max(1, most)


def _may_repeat(chunk: pq.ColumnChunkMetaData) -> bool:
    return chunk.physical_type == "BYTE_ARRAY" and bool(chunk.has_dictionary_page)


def _longest(warehouse: Warehouse, file: NamedFile, group: int, columns: Sequence[str]) -> int:
    """Return the sum of the lengths of the longest value of each column, in the dictionaries of a row group."""
    if not columns:
        return 0
    with opened_parquet(warehouse, file, dictionaries=columns) as parquet:
        first = next(parquet.iter_batches(1, row_groups=[group], columns=list(columns)))
    return sum(_longest_in(column) for column in first.columns)


def _longest_in(column: pa.Array) -> int:
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    return int(pc.max(pc.binary_length(column.dictionary)).as_py() or 0)


def joined(batches: Iterator[pa.RecordBatch], most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows, in batches of about ``most_bytes``."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not len(batch):
            continue  # a slice without rows holds all bytes of what it was cut from
        pending.append(batch)
        rows, size = rows + len(batch), size + batch.nbytes
        if size >= most_bytes or rows >= BATCH_ROWS:
            yield pa.concat_batches(pending)
            pending, rows, size = [], 0, 0
    if pending:
        yield pa.concat_batches(pending)


def groups_in(parquet: pq.ParquetFile, tokens: TokenRange, wanted: Wanted | None) -> Iterator[int]:
    """Yield the row groups that may hold one of the tokens, and are ``wanted``."""
    for group in range(parquet.num_row_groups):
        metadata = parquet.metadata.row_group(group)
        if tokens.meets(*token_bounds(metadata)) and (wanted is None or wanted(metadata)):
            yield group


def token_bounds(group: pq.RowGroupMetaData) -> tuple[int, int]:
    """Return the least and the largest token of a row group, from its statistics.

    The token is the last column of runs and changes, so that engines which read the other columns find them at their
    places; the first of other files, and of those of an older release.
    """
    for place in (group.num_columns - 1, 0):
        column = group.column(place)
        known = column.statistics if column.path_in_schema == TOKEN_COLUMN else None
        if known is not None and known.has_min_max:
            return known.min, known.max
    return LEAST_TOKEN, MOST_TOKEN


def staged_groups(parquet: pq.ParquetFile, tokens: TokenRange) -> Sequence[int]:
    """Return the row groups of a staging file that may hold one of the tokens: all if an older release wrote it."""
    known = TOKEN_COLUMN in parquet.schema_arrow.names
    return [*groups_in(parquet, tokens, None)] if known else range(parquet.num_row_groups)


def rows_in(batches: Sequence[pa.RecordBatch]) -> Rows:
    """Return state rows that are in the order of their tokens."""
    whole = pa.concat_batches(batches)
    return Rows(tokens_in(whole), whole)


def tokens_in(batch: pa.RecordBatch) -> Tokens:
    """Return the token of each state row."""
    return np.asarray(batch.column(TOKEN_COLUMN).to_numpy(zero_copy_only=False), dtype=np.int64)


def may_hold(touched: Tokens, group: pq.RowGroupMetaData) -> bool:
    """Return whether a row group may hold one of the tokens, which are in ascending order, by its statistics."""
    least, most = token_bounds(group)
    first = int(np.searchsorted(touched, np.int64(least)))
    return first < len(touched) and int(touched[first]) <= most


def only_touched(batch: pa.RecordBatch, touched: Tokens) -> pa.RecordBatch:
    """Return the state rows with one of the tokens, which are in ascending order."""
    tokens = tokens_in(batch)
    at = np.minimum(np.searchsorted(touched, tokens), len(touched) - 1)
    return batch.filter(pa.array(touched[at] == tokens))


def _begins_within(batch: pa.RecordBatch, tokens: TokenRange) -> bool:
    return not len(batch) or batch.column(TOKEN_COLUMN)[0].as_py() <= tokens.last


def _within(batch: pa.RecordBatch, tokens: TokenRange) -> pa.RecordBatch:
    if tokens == TokenRange():
        return batch
    batch_tokens = tokens_in(batch)
    start = int(np.searchsorted(batch_tokens, np.int64(tokens.first)))
    end = int(np.searchsorted(batch_tokens, np.int64(tokens.last), side="right"))
    return batch.slice(start, end - start)
