"""Schemas of tables as the catalog stores them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import sqlalchemy as sa

from app.catalog.shared import checksums
from app.catalog.shared.models import table_schemas
from app.catalog.shared.transaction import AnyRow, Transaction
from app.catalog.tables.schema_cache import SchemaCache
from app.core.errors import DamagedCatalog, Invalid, Resource, not_found
from app.core.table.options.entries import REMOVED_OPTIONS
from app.core.table.schema import TableSchema

# Members of a stored schema besides Paimon's.
_REMOVALS = "_kf_removals"
_EPOCH = "_kf_epoch"  # not in schemas of 0.1.0, nor in those of the first epoch
_HIGHEST_ID = "_kf_highest_id"  # of any column or field that the table ever had; not in schemas of 0.1.0


def _read_schema(body: str) -> TableSchema:
    stored = json.loads(body)
    schema = TableSchema.from_json(stored)
    options = {key: text for key, text in schema.options.items() if key not in REMOVED_OPTIONS}
    remembers, epoch = bool(stored.get(_REMOVALS)), int(stored.get(_EPOCH, 0))
    return replace(schema, options=options, remembers_removals=remembers, epoch=epoch)


_SCHEMAS = SchemaCache(_read_schema)


def schema_in(table_id: str, schema_id: int, row: AnyRow) -> TableSchema:
    """Return the schema in a row with its ``body`` and ``checksum``. Raise ``DamagedCatalog``."""
    what = f"schema {schema_id} of table {table_id}"
    checksums.check(row.checksum, checksums.of_schema(table_id, schema_id, row.body), what)
    try:
        return _SCHEMAS.schema(row.body)
    except (Invalid, ValueError, TypeError, LookupError, AttributeError) as error:
        raise DamagedCatalog(f"{what} cannot be read") from error


def _schema_text(schema: TableSchema, highest_id: int) -> str:
    """Return the text of a schema in the catalog."""
    extra = {name: value for name, value in ((_REMOVALS, schema.remembers_removals), (_EPOCH, schema.epoch)) if value}
    return json.dumps({**schema.to_json(), **extra, _HIGHEST_ID: highest_id}, separators=(",", ":"))


@dataclass(frozen=True)
class StoredSchemas:
    """Reads and writes the schemas of tables."""

    transaction: Transaction

    def at(self, table_id: str, schema_id: int) -> TableSchema:
        """Return the schema with this number. Raise ``NotFound`` if the table was dropped, or ``DamagedCatalog``."""
        return schema_in(table_id, schema_id, self._row(table_id, schema_id))

    def highest_id(self, table_id: str, schema_id: int) -> int:
        """Return the largest id of any column or field up to this schema. Raise as ``at``.

        It is kept with each schema, so that an ALTER need not read all of those before it.
        """
        highest = -1
        for number in range(schema_id, -1, -1):
            row = self._row(table_id, number)
            schema = schema_in(table_id, number, row)
            known = json.loads(row.body).get(_HIGHEST_ID)
            highest = max(highest, schema.highest_field_id, -1 if known is None else known)
            if known is not None:
                break
        return highest

    def add(self, table_id: str, schema_id: int, schema: TableSchema, highest_id: int) -> None:
        """Store a schema of a table."""
        body = _schema_text(schema, highest_id)
        checksum = checksums.of_schema(table_id, schema_id, body)
        values = {"table_id": table_id, "schema_id": schema_id, "body": body, "checksum": checksum}
        self.transaction.execute(table_schemas.insert().values(values))

    def _row(self, table_id: str, schema_id: int) -> AnyRow:
        query = sa.select(table_schemas.c.body, table_schemas.c.checksum).where(
            table_schemas.c.table_id == table_id, table_schemas.c.schema_id == schema_id
        )
        row = self.transaction.execute(query).first()
        if row is None:
            raise not_found(Resource.TABLE, table_id)
        return row
