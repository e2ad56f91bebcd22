"""Columns that are added: found behind faults that a wider type mends, and lost with what is refused after all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.catalog.database import CatalogDatabase
from app.core.errors import Invalid
from app.core.plan.records.bounds import Bounds
from app.core.plan.records.unknown_columns import UnknownColumns
from app.core.table.history import Table
from app.files.layout import Warehouse
from app.services.batches.batches import Upload, accept_batch
from app.services.shared.executor import MergeSite
from tests.services.builders import create_table

FIELDS = [
    {"field": "id", "type": "int64"},
    {"field": "n", "type": "int64"},
    {"field": "more", "type": "string", "optional": True},
]
SCHEMA = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": FIELDS}]}


def events(*rows: dict[str, Any]) -> bytes:
    reported = [{"schema": SCHEMA, "payload": {"op": "c", "before": None, "after": row}} for row in rows]
    return "\n".join(map(json.dumps, reported)).encode()


def narrow(database: CatalogDatabase) -> Table:
    return create_table(database, {}, columns=(("id", "BIGINT"), ("n", "INT")))


def upload(body: bytes) -> Upload:
    return Upload(body, "application/x-ndjson", events="debezium-json", unknown_columns=UnknownColumns.ADD)


def test_columns_behind_a_fault_are_found_once_it_is_mended(site: MergeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a body with many faults the rest is not read: the first turn sees no more than the first event."""
    monkeypatch.setattr("app.storage.ingest.pieces.MOST_COUNTED", 1)
    table = narrow(site.database)
    body = events({"id": 1, "n": 2**40}, {"id": 2, "n": 1, "more": "x"})
    done = accept_batch(site.database, site.warehouse, "shop", "wide", upload(body), Bounds(10, piece_bytes=64))
    assert [change["action"] for change in done.changes] == ["updateColumnType", "addColumn"]
    assert (done.batch.records, done.batch.ignored_columns) == (2, None)
    with site.database.reading() as repository:
        altered = repository.tables.get("shop", "wide")
    assert {column.name: column.type.base_sql for column in altered.schema.columns} == {
        "id": "BIGINT",
        "n": "BIGINT",
        "more": "STRING",
    }
    assert [one.name for one in Path(site.warehouse.path(table.id, "staging")).iterdir()] == [done.batch.file]


def test_what_is_refused_after_all_leaves_nothing(database: CatalogDatabase, warehouse: Warehouse) -> None:
    table = narrow(database)
    body = events({"id": 1, "n": 2**40, "more": "x"}, {"id": 2, "n": "no number"})
    with pytest.raises(Invalid) as refused:
        accept_batch(database, warehouse, "shop", "wide", upload(body), Bounds(10))
    assert [fault.pointer for fault in refused.value.violations] == ["/events/1/n"]
    with database.reading() as repository:
        assert repository.tables.get("shop", "wide").schema_id == table.schema_id
        assert repository.batches.page(table.id, limit=1) == []
    assert not [*Path(warehouse.path(table.id, "staging")).glob("*")]
