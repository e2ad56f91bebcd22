"""Batches as the catalog would have them, of staging files of the table ``t1``."""

from __future__ import annotations

from datetime import UTC, datetime

from app.core.table.history import Batch, BatchState
from app.storage.checksums import checksums_of
from app.storage.layout import Warehouse, staging_file


def batch_in(warehouse: Warehouse, name: str, number: int = 1) -> Batch:
    """The batch whose staging file is called ``name``, as the file is now."""
    found = checksums_of(warehouse, warehouse.path(*staging_file("t1", name)))
    return Batch(
        id=name.removesuffix(".parquet"),
        table_id="t1",
        number=number,
        state=BatchState.STAGED,
        schema_id=0,
        file=name,
        records=1,
        ignored=0,
        size_bytes=found.size_bytes,
        fingerprint="f",
        idempotency_key=None,
        accepted_at=datetime(2026, 1, 1, tzinfo=UTC),
        merge_id=None,
        snapshot_id=None,
        digest=found.digest,
    )
