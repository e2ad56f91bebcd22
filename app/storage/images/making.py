"""Images made from a data file: one of answers, one of state rows, each written to a temporary file and renamed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from app.core.plan.merging.merge_plan import MergePlan
from app.core.table.records import TOKEN_COLUMN
from app.storage.images.answers import entries_but_odd
from app.storage.images.container import BLOCK_ROWS, Damaged, Int64s, write_container
from app.storage.images.packing import dictionary_of, packing

_BATCH_ROWS = 64 * BLOCK_ROWS  # a few megabytes: the texts of a batch stay in the processor's cache
_BATCH_BYTES = 32 * 2**20
_BLOCK_BYTES, _MOST_BLOCK_ROWS = 8 * 2**20, 512 * BLOCK_ROWS
_MOST_ODD = 100  # rows of a file that have no answer in bytes; a file that has more gets no image
_NO_ROWS = np.empty(0, dtype=np.int64)


def write_answers(source: pq.ParquetFile, path: Path, written: MergePlan, shown: MergePlan) -> None:
    """Write the image of a data file: the answer of each row, compressed, by token.

    The file was written under the plan ``written``; answers are those of ``shown``. Raise ``Damaged`` if its rows are
    not in the order of their tokens.
    """
    tokens, sizes, most_odd = [_NO_ROWS], [np.zeros(1, dtype=np.int64)], _MOST_ODD
    dictionary: bytes | None = None
    with open(path, "wb") as file:
        for batch in _batches(source):
            texts, most_odd = entries_but_odd(batch, written, shown, most_odd)
            texts = texts.cast(pa.large_binary()).to_pylist()
            if dictionary is None:  # rows are in the order of their tokens: the first are like all
                dictionary = dictionary_of(texts, source.metadata.num_rows)
                pack = packing(dictionary)
            packed = [pack(text) for text in texts]
            file.writelines(packed)
            sizes.append(np.fromiter(map(len, packed), dtype=np.int64, count=len(packed)))
            tokens.append(_tokens(batch))
    places = np.cumsum(np.concatenate(sizes))
    write_container(path, _in_order(np.concatenate(tokens)), places, 1, dictionary=dictionary or b"")


def write_states(source: pq.ParquetFile, path: Path) -> None:
    """Write the image of the state rows of a data file. Raise ``Damaged`` if they are not in order."""
    tokens, places = [_NO_ROWS], [0]
    rows = _rows_per_block(source)
    with open(path, "wb") as file:
        for batch in _blocks(source, rows):
            file.write(batch.serialize())
            places.append(file.tell())
            tokens.append(_tokens(batch))
    meta = source.schema_arrow.serialize().to_pybytes()
    in_order = _in_order(np.concatenate(tokens))
    write_container(path, in_order, np.array(places, dtype=np.int64), rows, meta)


def _tokens(batch: pa.RecordBatch) -> Int64s:
    return np.asarray(batch.column(TOKEN_COLUMN).to_numpy(), dtype=np.int64)


def _in_order(tokens: Int64s) -> Int64s:
    if len(tokens) and not bool((tokens[1:] >= tokens[:-1]).all()):
        raise Damaged("the rows of the data file are not in the order of their tokens")
    return tokens


def _batches(source: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a data file, some megabytes at a time."""
    batch_rows = max(BLOCK_ROWS, min(_BATCH_ROWS, _BATCH_BYTES // _average_bytes(source)))
    yield from source.iter_batches(batch_size=batch_rows, use_threads=False)


def _average_bytes(source: pq.ParquetFile) -> int:
    metadata = source.metadata
    stored = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    return int(max(1, stored // max(1, metadata.num_rows)))


def _rows_per_block(source: pq.ParquetFile) -> int:
    """Return how many rows make some megabytes: a reader of many rows as columns pays for each block."""
    most = _BLOCK_BYTES // _average_bytes(source)
    return int(max(BLOCK_ROWS, min(_MOST_BLOCK_ROWS, most // BLOCK_ROWS * BLOCK_ROWS)))


def _blocks(source: pq.ParquetFile, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a data file, a block at a time."""
    rest: pa.Table | None = None
    for batch in _batches(source):
        read = pa.Table.from_batches([batch])
        table = read if rest is None else pa.concat_tables([rest, read])
        whole = len(table) // rows * rows
        for start in range(0, whole, rows):
            yield _one_batch(table.slice(start, rows))
        rest = table.slice(whole)
    if rest is not None and len(rest):
        yield _one_batch(rest)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0]
