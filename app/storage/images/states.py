"""State rows by token: out of an image, or out of the row groups of the Parquet file while there is none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from app.core.plan.records.answers import weight
from app.core.table.records import TOKEN_COLUMN
from app.core.table.upkeep.damage import NamedFile
from app.files.layout import Warehouse
from app.files.named_files import opened_parquet
from app.files.reading import token_bounds
from app.files.tokens import Tokens
from app.storage.images.container import Container, spans
from app.storage.images.read_bytes import ReadBytes

_TAKEN_BYTES = 4 * 2**20
_MANY = 8  # rows; from here on columns are faster
StateRow = Mapping[str, Any]
Some = TypeVar("Some", pa.Table, pa.RecordBatch)
Candidate = tuple[int, StateRow]
"""The place of a token among those asked for, and a row that has it: keys may share a token."""


def rows_in_image(image: Container, tokens: Sequence[int], read: ReadBytes | None = None) -> Iterator[Candidate]:
    """Yield the rows of an image of state rows that have one of ``tokens``; a block is read once. Raise ``Damaged``,
    and ``TooMuchAtOnce``.
    """
    wanted: dict[int, list[tuple[int, int]]] = defaultdict(list)
    rows = image.rows_per_entry
    for place, token in enumerate(tokens):
        for row in image.rows_of(token):
            wanted[row // rows].append((place, row % rows))
    for block, matches in sorted(wanted.items()):
        yield from _taken(_block(image, block), matches, read)


def columns_in_image(image: Container, tokens: Tokens, read: ReadBytes | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an image of state rows that have one of ``tokens``, which are ascending and each once, by
    token. Raise as ``rows_in_image``.
    """
    rows = image.all_rows(tokens)
    blocks = rows // image.rows_per_entry
    for block in np.unique(blocks).tolist():
        yield from _few(_block(image, block), rows[blocks == block] % image.rows_per_entry, read)


def columns_in_parquet(
    warehouse: Warehouse, file: NamedFile, tokens: Tokens, read: ReadBytes | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield what ``columns_in_image`` does, of a data file. Read each row group once. Raise as ``rows_in_parquet``."""
    with opened_parquet(warehouse, file) as parquet:
        for group in range(parquet.num_row_groups):
            low, high = token_bounds(parquet.metadata.row_group(group))
            wanted = tokens[(tokens >= low) & (tokens <= high)]
            if not len(wanted):
                continue
            row_tokens = parquet.read_row_group(group, columns=[TOKEN_COLUMN]).column(TOKEN_COLUMN).to_numpy()
            rows = spans(*(np.searchsorted(row_tokens, wanted, side=side) for side in ("left", "right")))
            if len(rows):
                [whole] = parquet.read_row_group(group).combine_chunks().to_batches()
                yield from _few(whole, rows, read)


def _few(batch: Some, rows: Tokens, read: ReadBytes | None) -> Iterator[Some]:
    """Yield some rows of a batch, as many at a time as take some megabytes."""
    step = max(1, _TAKEN_BYTES * batch.num_rows // max(1, batch.nbytes))
    for start in range(0, len(rows), step):
        taken = batch.take(pa.array(rows[start : start + step]))
        if read is not None:
            read.add(taken.nbytes)
        yield taken


def _block(image: Container, block: int) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(image.mapped_entry(block)), _schema(image.meta))


def rows_in_parquet(
    warehouse: Warehouse, file: NamedFile, tokens: Sequence[int], read: ReadBytes | None = None
) -> Iterator[Candidate]:
    """Yield the rows of a data file that have one of ``tokens``, out of the row groups whose token range holds any.

    Of a row group the tokens are read first: most runs of a table do not have the key, and all its columns take many
    times as long. Raise ``DamagedFile``, and ``TooMuchAtOnce``.
    """
    wanted = np.array(tokens, dtype=np.int64)
    with opened_parquet(warehouse, file) as parquet:
        for group in range(parquet.num_row_groups):
            low, high = token_bounds(parquet.metadata.row_group(group))
            places = np.flatnonzero((wanted >= low) & (wanted <= high)).tolist()
            matches = _matches(parquet.read_row_group(group, columns=[TOKEN_COLUMN]), wanted, places) if places else []
            if matches:
                yield from _taken(parquet.read_row_group(group), matches, read)


def _matches(rows: pa.Table, wanted: np.ndarray[Any, Any], places: Sequence[int]) -> list[tuple[int, int]]:
    """(place, row) of every row that has the token of one of ``places``; ``rows`` are their tokens."""
    row_tokens = np.asarray(rows.column(TOKEN_COLUMN).to_numpy(), dtype=np.int64)
    firsts, lasts = (np.searchsorted(row_tokens, wanted[places], side=side).tolist() for side in ("left", "right"))
    return [
        (place, row) for place, first, last in zip(places, firsts, lasts, strict=True) for row in range(first, last)
    ]


def _taken(
    rows: pa.Table | pa.RecordBatch, matches: Sequence[tuple[int, int]], read: ReadBytes | None
) -> Iterator[Candidate]:
    for place, state in _states(rows, matches):
        del state[TOKEN_COLUMN]
        if read is not None:
            read.add(weight(state))
        yield place, state


def _states(
    rows: pa.Table | pa.RecordBatch, matches: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of ``matches``: a few one by one, each as one value, and many column by column.

    Of 12 columns the first takes a third of the other for one row, the other an eighth for 200.
    """
    if len(matches) < _MANY:
        whole = rows.to_struct_array()
        yield from ((place, whole[row].as_py()) for place, row in matches)
        return
    states = (state for some in _few(rows, np.array([row for _, row in matches]), None) for state in some.to_pylist())
    yield from zip((place for place, _ in matches), states, strict=True)


@lru_cache(maxsize=4096)
def _schema(serialized: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(serialized))
