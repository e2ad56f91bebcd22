"""Valid defaults, so that a test names only what matters to it."""

from __future__ import annotations

from typing import Any

from app.core.table.schema import TableSchema
from tests.oracle import TableCase


def schema_json(table: TableCase) -> dict[str, Any]:
    """The table as Paimon's REST catalog takes it."""
    return {
        "fields": [{"name": name, "type": data_type} for name, data_type in table.columns],
        "primaryKeys": list(table.primary_key),
        "options": dict(table.options),
    }


def schema_of(table: TableCase) -> TableSchema:
    """The table's schema."""
    return TableSchema.from_json(schema_json(table))
