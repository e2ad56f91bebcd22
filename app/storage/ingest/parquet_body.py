"""Parquet files as bodies, nothing in them trusted."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from app.core.plan.bounds import Bounds
from app.core.plan.record_decoder import DecodedRecords, RecordDecoder
from app.storage.ingest.arrow_stream import FAULTS
from app.storage.ingest.arrow_table import check_columns, decode_table
from app.storage.ingest.parquet_footer import read_footer
from app.storage.ingest.refusals import unreadable

_FIX = "send one whole Parquet file"


def decode_parquet(decoder: RecordDecoder, body: bytes, bounds: Bounds) -> DecodedRecords:
    """The records of a Parquet file to stage. Raises ``Invalid`` with every fault, or ``TooLarge``."""
    try:
        footer = read_footer(body)
    except FAULTS as error:
        raise unreadable("a Parquet file", error, _FIX) from error
    bounds.check_records(footer.rows)
    bounds.check_bytes(max(footer.unpacked_bytes, footer.values // 8))
    try:
        # Text as dictionaries, as it is stored: a long one that is named by every row takes its place once.
        file = pq.ParquetFile(pa.BufferReader(body), read_dictionary=list(footer.byte_columns))
        check_columns(decoder, file.schema_arrow)
    except FAULTS as error:
        raise unreadable("a Parquet file", error, _FIX) from error
    return decode_table(decoder, _read(file, bounds), bounds)


def _read(file: pq.ParquetFile, bounds: Bounds) -> pa.Table:
    tables: list[pa.Table] = []
    size = 0
    try:
        for group in range(file.num_row_groups):
            tables.append(file.read_row_group(group, use_threads=False))
            size += tables[-1].nbytes
            bounds.check_bytes(size)
        table = pa.concat_tables(tables) if tables else file.schema_arrow.empty_table()
        table.validate(full=True)
    except FAULTS as error:
        raise unreadable("a Parquet file", error, _FIX) from error
    return table
