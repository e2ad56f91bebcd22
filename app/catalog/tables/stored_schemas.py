"""Schemas of tables as the catalog stores them."""

from __future__ import annotations

import json
from dataclasses import replace

from app.catalog.shared import checksums
from app.catalog.shared.transaction import AnyRow
from app.catalog.tables.schema_cache import SchemaCache
from app.core.errors import DamagedCatalog, Invalid
from app.core.table.options.entries import REMOVED_OPTIONS
from app.core.table.schema import TableSchema

# Members of a stored schema besides Paimon's.
_REMOVALS = "_kf_removals"
HIGHEST_ID = "_kf_highest_id"  # of any column or field that the table ever had; not in schemas of 0.1.0


def _read_schema(body: str) -> TableSchema:
    stored = json.loads(body)
    schema = TableSchema.from_json(stored)
    options = {key: text for key, text in schema.options.items() if key not in REMOVED_OPTIONS}
    return replace(schema, options=options, remembers_removals=bool(stored.get(_REMOVALS)))


_SCHEMAS = SchemaCache(_read_schema)


def schema_in(table_id: str, schema_id: int, row: AnyRow) -> TableSchema:
    """Return the schema in a row with its ``body`` and ``checksum``. Raise ``DamagedCatalog``."""
    what = f"schema {schema_id} of table {table_id}"
    checksums.check(row.checksum, checksums.of_schema(table_id, schema_id, row.body), what)
    try:
        return _SCHEMAS.of(row.body)
    except (Invalid, ValueError, TypeError, LookupError, AttributeError) as error:
        raise DamagedCatalog(f"{what} is not one") from error


def schema_text(schema: TableSchema, highest_id: int) -> str:
    """Return a schema as it is stored."""
    own = {_REMOVALS: True} if schema.remembers_removals else {}
    return json.dumps({**schema.to_json(), **own, HIGHEST_ID: highest_id}, separators=(",", ":"))
