"""State rows by token: out of an image, or out of the row groups of the Parquet file while there is none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from app.core.plan.records.answers import weight
from app.core.table.records import TOKEN_COLUMN
from app.core.table.upkeep.damage import NamedFile
from app.files.layout import Warehouse
from app.files.named_files import opened_parquet
from app.storage.images.container import BLOCK_ROWS, Container
from app.storage.images.read_bytes import ReadBytes

StateRow = Mapping[str, Any]
Candidate = tuple[int, StateRow]
"""The place of a token among those asked for, and a row that has it: keys may share a token."""


def rows_in_image(image: Container, tokens: Sequence[int], read: ReadBytes | None = None) -> Iterator[Candidate]:
    """Yield the rows of an image of state rows that have one of ``tokens``; a block is read once. Raise ``Damaged``,
    and ``TooMuchAtOnce``.
    """
    wanted: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for place, token in enumerate(tokens):
        for row in image.rows_of(token):
            wanted[row // BLOCK_ROWS].append((place, row % BLOCK_ROWS))
    if not wanted:
        return
    schema = _schema(image.meta)
    for block, found in sorted(wanted.items()):
        batch = pa.ipc.read_record_batch(pa.py_buffer(image.entry(block * BLOCK_ROWS)), schema)
        yield from _taken(batch, found, read)


def rows_in_parquet(
    warehouse: Warehouse, file: NamedFile, tokens: Sequence[int], read: ReadBytes | None = None
) -> Iterator[Candidate]:
    """Yield the rows of a data file that have one of ``tokens``, out of the row groups whose token range holds any.

    Of a row group the tokens are read first: most runs of a table do not have the key, and all its columns take many
    times as long. Raise ``DamagedFile``, and ``TooMuchAtOnce``.
    """
    asked = np.array(tokens, dtype=np.int64)
    with opened_parquet(warehouse, file) as parquet:
        for group in range(parquet.num_row_groups):
            low, high = _range(parquet, group)
            places = np.flatnonzero((asked >= low) & (asked <= high)).tolist()
            found = _matches(parquet.read_row_group(group, columns=[TOKEN_COLUMN]), asked, places) if places else []
            if found:
                yield from _taken(parquet.read_row_group(group), found, read)


def _matches(rows: pa.Table, asked: np.ndarray[Any, Any], places: Sequence[int]) -> list[tuple[int, int]]:
    """(place, row) of every row that has the token of one of ``places``; ``rows`` are their tokens."""
    own = np.asarray(rows.column(TOKEN_COLUMN).to_numpy(), dtype=np.int64)
    firsts, lasts = (np.searchsorted(own, asked[places], side=side).tolist() for side in ("left", "right"))
    return [
        (place, row) for place, first, last in zip(places, firsts, lasts, strict=True) for row in range(first, last)
    ]


def _taken(
    rows: pa.Table | pa.RecordBatch, found: Sequence[tuple[int, int]], read: ReadBytes | None
) -> Iterator[Candidate]:
    """A few rows are read one by one, each as one value: column by column takes twice as long."""
    whole = rows.to_struct_array()
    for place, row in found:
        state = whole[row].as_py()
        del state[TOKEN_COLUMN]
        if read is not None:
            read.add(weight(state))
        yield place, state


@lru_cache(maxsize=4096)
def _schema(serialized: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(serialized))


def _range(parquet: pq.ParquetFile, group: int) -> tuple[int, int]:
    """Return the least and the largest token of a row group."""
    statistics = parquet.metadata.row_group(group).column(0).statistics
    known = statistics is not None and statistics.has_min_max
    return (statistics.min, statistics.max) if known else (-(2**63), 2**63 - 1)
