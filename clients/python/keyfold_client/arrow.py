"""Tables of Arrow, pandas and polars: cut into batches, and made of a scan. It needs PyArrow."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final

from keyfold_client.errors import Misuse
from keyfold_client.pieces import PIECE_BYTES, PIECE_RECORDS, Piece

try:
    import pyarrow as pa
except ImportError as error:
    raise Misuse("this needs PyArrow: pip install 'keyfold-client[pandas]', or [polars], or [arrow]") from error

STREAM: Final = "application/vnd.apache.arrow.stream"


def streams(rows: Any) -> Iterator[Piece]:
    """Yield the rows of anything that shows itself as Arrow, as bodies of one batch each."""
    for table in gathered(cut_batches(_reader(rows))):
        yield Piece(as_stream(table), table.num_rows, STREAM)


def _reader(rows: Any) -> Iterable[pa.RecordBatch]:
    """Return the rows as batches. Of pandas, an index is a column where it has a name; NaN is null. Raise ``Misuse``
    for a column of pandas that has no Arrow type.
    """
    if type(rows).__module__.partition(".")[0] == "pandas":
        named = any(name is not None for name in rows.index.names)
        try:
            rows = pa.Table.from_pandas(rows, preserve_index=named)
        except pa.ArrowException as error:
            why = ": ".join(str(part) for part in error.args[::-1])
            raise Misuse(
                f"a column of the frame has no Arrow type: {why}. Give the column one type, or send dicts."
            ) from error
    if isinstance(rows, pa.RecordBatch):
        return [rows]
    reader: Iterable[pa.RecordBatch] = pa.RecordBatchReader.from_stream(rows)
    return reader


def cut_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of ``batches``, none of more than a batch of the service takes."""
    for batch in batches:
        rows = rows_of_piece(batch.nbytes, batch.num_rows)
        for first in range(0, batch.num_rows, rows):
            yield pa.Table.from_batches([batch.slice(first, rows)])


def gathered(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield several of them together where they are small: there may be a thousand batches of ten rows."""
    waiting: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        if waiting and (rows + table.num_rows > PIECE_RECORDS or size + table.nbytes > PIECE_BYTES):
            yield pa.concat_tables(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
    if waiting:
        yield pa.concat_tables(waiting)


def rows_of_piece(size: int, rows: int) -> int:
    """Return how many rows make about ``PIECE_BYTES``."""
    return max(1, min(PIECE_RECORDS, rows * PIECE_BYTES // max(size, 1)))


def as_stream(table: pa.Table) -> bytes:
    """Return the rows in Arrow's streaming format."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()


def reader_of_batches(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    """Return what reads ``batches`` one after the other."""
    return pa.RecordBatchReader.from_batches(schema, batches)


def to_pandas(rows: pa.Table) -> Any:
    """Return the rows as a ``pandas.DataFrame``; whole numbers and booleans of types that know null."""
    import pandas as pd  # noqa: PLC0415  # another extra

    kinds = {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }
    return rows.to_pandas(types_mapper=kinds.get)


def to_polars(rows: pa.Table) -> Any:
    """Return the rows as a ``polars.DataFrame``."""
    import polars as pl  # noqa: PLC0415  # another extra

    return pl.from_arrow(rows)


def reader_of(file: IO[bytes] | bytes) -> pa.RecordBatchReader:
    """Return the rows of a stream as they are read from it."""
    return pa.ipc.open_stream(file)
