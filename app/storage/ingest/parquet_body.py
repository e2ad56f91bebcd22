"""Parquet files as bodies, nothing in them trusted."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from app.core.plan.records.bounds import Bounds
from app.core.plan.records.record_decoder import RecordDecoder
from app.storage.ingest.arrow_stream import FAULTS
from app.storage.ingest.arrow_table import check_columns, table_pieces
from app.storage.ingest.parquet_footer import read_footer
from app.storage.ingest.pieces import Piece
from app.storage.ingest.refusals import unreadable
from app.storage.staging.spool import Content

_FIX = "send one whole Parquet file"


def parquet_pieces(decoder: RecordDecoder, content: Content, bounds: Bounds) -> Iterator[Piece]:
    """Return the records of a Parquet file. Raise ``Invalid`` if it is no such file, and ``TooLarge``."""
    try:
        footer = read_footer(content)
    except FAULTS as error:
        raise unreadable("a Parquet file", error, _FIX) from error
    bounds.check_records(footer.rows)
    bounds.check_values(footer.values)
    bounds.check_unfolded(footer.unpacked_bytes, len(content))
    bounds.check_decoded("page", footer.largest_page, bounds.page_bytes)
    bounds.check_decoded("row group, in its nested columns,", footer.nested_bytes, bounds.whole_bytes)
    try:
        # Bytes stay dictionaries, as they are stored: a long text in every row takes memory once.
        file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(content)), read_dictionary=list(footer.byte_columns))
        check_columns(decoder, file.schema_arrow)
    except FAULTS as error:
        raise unreadable("a Parquet file", error, _FIX) from error
    rows_at_once = footer.rows * bounds.piece_bytes // max(footer.decoded_bytes, bounds.piece_bytes)
    rows_at_once = min(max(1, rows_at_once), bounds.piece_records)
    return table_pieces(decoder, file.schema_arrow, _batches(file, rows_at_once), bounds)


def _batches(file: pq.ParquetFile, rows_at_once: int) -> Iterator[pa.RecordBatch]:
    try:
        for group in range(file.num_row_groups):  # pyarrow reads no nested dictionaries of two at once
            declared = left = file.metadata.row_group(group).num_rows
            for batch in file.iter_batches(rows_at_once, row_groups=[group], use_threads=False):
                batch.validate(full=True)
                left -= batch.num_rows
                yield batch
            if left:
                raise ValueError(f"row group {group} declares {declared} rows, and {declared - left} can be read")
    except FAULTS as error:
        raise unreadable("a Parquet file", error, _FIX) from error
