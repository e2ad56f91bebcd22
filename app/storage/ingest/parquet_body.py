"""Parquet files as bodies, nothing in them trusted."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from app.core.plan.bounds import Bounds
from app.core.plan.record_decoder import RecordDecoder
from app.storage.ingest.arrow_stream import FAULTS
from app.storage.ingest.arrow_table import check_columns, table_pieces
from app.storage.ingest.parquet_footer import read_footer
from app.storage.ingest.pieces import Piece
from app.storage.ingest.refusals import unreadable
from app.storage.spool import Content

_FIX = "send one whole Parquet file"


def parquet_pieces(decoder: RecordDecoder, content: Content, bounds: Bounds) -> Iterator[Piece]:
    """The records of a Parquet file. Raises ``Invalid`` for what is no such file, and ``TooLarge``."""
    try:
        footer = read_footer(content)
    except FAULTS as error:
        raise unreadable("a Parquet file", error, _FIX) from error
    bounds.check_records(footer.rows)
    bounds.check_values(footer.values)
    bounds.check_bytes(footer.unpacked_bytes)
    try:
        # Text as dictionaries, as it is stored: a long one that is named by every row takes its place once.
        file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(content)), read_dictionary=list(footer.byte_columns))
        check_columns(decoder, file.schema_arrow)
    except FAULTS as error:
        raise unreadable("a Parquet file", error, _FIX) from error
    rows_at_once = max(1, footer.rows * bounds.piece_bytes // max(footer.unpacked_bytes, bounds.piece_bytes))
    return table_pieces(decoder, file.schema_arrow, _batches(file, rows_at_once), bounds)


def _batches(file: pq.ParquetFile, rows_at_once: int) -> Iterator[pa.RecordBatch]:
    try:
        for batch in file.iter_batches(rows_at_once, use_threads=False):
            batch.validate(full=True)
            yield batch
    except FAULTS as error:
        raise unreadable("a Parquet file", error, _FIX) from error
