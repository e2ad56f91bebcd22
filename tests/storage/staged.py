"""Batches as the catalog would have them, of staging files of the table ``t1``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from app.core.plan.records.record_decoder import DecodedRecords
from app.core.table.history import Batch, BatchState
from app.core.table.named_columns import named_words
from app.core.table.records import KIND_COLUMN, POSITION_COLUMN
from app.core.table.schema import TableSchema
from app.files.arrow import staging_schema
from app.files.checksums import Checksums, checksums_of
from app.files.layout import Warehouse, staging_file


def batch_in(warehouse: Warehouse, name: str, number: int = 1, records: int = 1) -> Batch:
    """The batch whose staging file is called ``name``, as the file is now."""
    found = checksums_of(warehouse, warehouse.path(*staging_file("t1", name)))
    return Batch(
        id=name.removesuffix(".parquet"),
        table_id="t1",
        number=number,
        state=BatchState.STAGED,
        schema_id=0,
        file=name,
        records=records,
        ignored=0,
        size_bytes=found.size_bytes,
        fingerprint="f",
        idempotency_key=None,
        accepted_at=datetime(2026, 1, 1, tzinfo=UTC),
        merge_id=None,
        snapshot_id=None,
        digest=found.digest,
    )


def write_as_before(
    warehouse: Warehouse, table_id: str, name: str, schema: TableSchema, pieces: Sequence[DecodedRecords]
) -> Checksums:
    """A staging file as releases before sorted ones wrote it: no token, a row group of each piece in arrival order."""
    path = Path(warehouse.path(*staging_file(table_id, name)))
    path.parent.mkdir(parents=True, exist_ok=True)
    how = {"compression": "snappy", "use_dictionary": list(named_words(schema)) or False, "write_statistics": False}
    with pq.ParquetWriter(path, staging_schema(schema), write_page_checksum=True, **how) as writer:
        for piece in pieces:
            columns = {**piece.columns, KIND_COLUMN: piece.kinds, POSITION_COLUMN: piece.positions, **piece.words}
            writer.write_table(pa.table(columns, schema=staging_schema(schema)))
    return checksums_of(warehouse, str(path))
