"""Valid defaults, so that a test names only what matters to it."""

from __future__ import annotations

from typing import Any

from app.core.table.schema import TableSchema
from app.settings import Settings
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


def settings_with(**given: Any) -> Settings:
    """Settings, and smaller values for bounds that no operator can set: those of a class of its own."""
    bounds = {name: value for name, value in given.items() if name not in Settings.model_fields and not name.isupper()}
    smaller = type("SmallerSettings", (Settings,), {"__module__": __name__, **bounds})
    return smaller(**{name: value for name, value in given.items() if name not in bounds})
