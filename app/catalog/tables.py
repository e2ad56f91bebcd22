"""Tables and the schemas they have had."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import sqlalchemy as sa

from app.catalog.databases import Databases, named
from app.catalog.failures import refusing
from app.catalog.models import batches, databases, delta_versions, history_bases, snapshots, table_schemas, tables, tags
from app.catalog.schema_cache import SchemaCache
from app.catalog.transaction import AnyRow, Transaction
from app.core.errors import AlreadyExists, Conflict, ErrorCode, KeyfoldError, Resource, not_found
from app.core.table.history import Table, Written
from app.core.table.schema import TableSchema

# Members of a stored schema beside Paimon's.
_REMOVALS = "_kf_removals"
_HIGHEST_ID = "_kf_highest_id"  # of any column or field that the table ever had; not in schemas of 0.1.0


def _read_schema(body: str) -> TableSchema:
    stored = json.loads(body)
    return replace(TableSchema.from_json(stored), remembers_removals=bool(stored.get(_REMOVALS)))


_SCHEMAS = SchemaCache(_read_schema)


def _schema_text(schema: TableSchema, highest_id: int) -> str:
    own = {_REMOVALS: True} if schema.remembers_removals else {}
    return json.dumps({**schema.to_json(), **own, _HIGHEST_ID: highest_id}, separators=(",", ":"))


def table_of(row: AnyRow) -> Table:
    """The table that a row of ``TABLES`` describes."""
    schema = _SCHEMAS.of(row.body)
    return Table(
        row.id,
        row.database,
        row.name,
        row.schema_id,
        schema,
        row.snapshot_id,
        row.created_at,
        row.updated_at,
        row.created_by,
        row.updated_by,
    )


def _already_exists(database: str, name: str) -> AlreadyExists:
    full_name = f"{database}.{name}"
    return AlreadyExists(
        f"table {full_name!r} exists already",
        code=ErrorCode.TABLE_ALREADY_EXISTS,
        resource_type="TABLE",
        resource_name=name,
    )


# One row per table, with its database's name and its current schema.
TABLES = sa.select(
    tables.c.id,
    databases.c.name.label("database"),
    tables.c.name,
    tables.c.schema_id,
    table_schemas.c.body,
    tables.c.snapshot_id,
    tables.c.created_at,
    tables.c.updated_at,
    tables.c.created_by,
    tables.c.updated_by,
).select_from(
    tables.join(databases, databases.c.id == tables.c.database_id).join(
        table_schemas,
        (table_schemas.c.table_id == tables.c.id) & (table_schemas.c.schema_id == tables.c.schema_id),
    )
)

# Made once: to build a statement takes as long as to run it.
_BY_NAME = TABLES.where(databases.c.name == sa.bindparam("database"), tables.c.name == sa.bindparam("table"))
_ALL_LOCKED = (
    sa.select(tables)
    .where(tables.c.id.in_(sa.bindparam("tables", expanding=True)))
    .order_by(tables.c.id)
    .with_for_update()
)
_LOCKED = sa.select(tables).where(tables.c.id == sa.bindparam("table")).with_for_update()


@dataclass(frozen=True)
class Tables:
    """What the repository knows about tables."""

    transaction: Transaction
    databases: Databases

    def create(self, database: str, name: str, schema: TableSchema, by: str = "") -> Table:
        """A new table with schema 0, made by the bearer of the token ``by``. Raises ``AlreadyExists``, or ``NotFound``
        for the database.
        """
        database_id = self.databases.row(database).id
        now = self.transaction.now()
        table = Table(uuid.uuid4().hex, database, name, 0, schema, None, now, now, by, by)
        insert = tables.insert().values(
            id=table.id,
            database_id=database_id,
            name=name,
            schema_id=0,
            last_batch_number=0,
            created_at=now,
            updated_at=now,
            created_by=by,
            updated_by=by,
        )
        with self._refusing_twins(database, name):
            self.transaction.execute(insert)
        self._add_schema(table.id, 0, schema, schema.highest_field_id)
        return table

    def count(self) -> int:
        """How many tables there are, in all databases."""
        return int(self.transaction.execute(sa.select(sa.func.count()).select_from(tables)).scalar_one())

    def get(self, database: str, name: str) -> Table:
        """The table ``database.name``. Raises ``NotFound``; its code tells a missing database from a missing table."""
        return table_of(self._row(database, name))

    def find(self, table_id: str) -> Table | None:
        """The table with this id, or None if it was dropped."""
        row = self.transaction.execute(TABLES.where(tables.c.id == table_id)).first()
        return None if row is None else table_of(row)

    def page(
        self,
        database: str,
        *,
        after: str | None = None,
        limit: int,
        like: str | None = None,
        among: Collection[str] | None = None,
    ) -> list[Table]:
        """Up to ``limit`` tables in name order: those after the name ``after``, those with a name LIKE ``like``, those
        that ``among`` names.

        Raises ``NotFound`` for the database.
        """
        query = TABLES.where(tables.c.database_id == self.databases.row(database).id)
        query = query.where(*named(tables.c.name, after, like, among))
        return [table_of(row) for row in self.transaction.execute(query.order_by(tables.c.name).limit(limit))]

    def names(
        self,
        database: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        like: str | None = None,
        among: Collection[str] | None = None,
    ) -> list[str]:
        """The names of the same tables, all of them without a ``limit``. Raises as ``page``."""
        query = sa.select(tables.c.name).where(tables.c.database_id == self.databases.row(database).id)
        query = query.where(*named(tables.c.name, after, like, among))
        return [*self.transaction.execute(query.order_by(tables.c.name).limit(limit)).scalars()]

    def ids(self, database: str) -> list[str]:
        """The ids of the tables of a database. Raises ``NotFound``."""
        query = sa.select(tables.c.id).where(tables.c.database_id == self.databases.row(database).id)
        return [*self.transaction.execute(query).scalars()]

    def schema_sizes(self, database: str, names: Collection[str]) -> list[int]:
        """About how many bytes the schemas of the tables ``names`` take, in name order. Raises as ``page``."""
        size = sa.func.length(table_schemas.c.body)
        query = TABLES.with_only_columns(size).where(tables.c.database_id == self.databases.row(database).id)
        query = query.where(tables.c.name.in_(names)).order_by(tables.c.name)
        return [*self.transaction.execute(query).scalars()]

    def rename(self, database: str, name: str, new_database: str, new_name: str, by: str = "") -> Table:
        """The table under its new name, maybe in another database. Raises ``NotFound`` or ``AlreadyExists``."""
        table_id = self._lock_named(database, name)
        target = self.databases.row(new_database).id
        change = tables.update().where(tables.c.id == table_id)
        with self._refusing_twins(new_database, new_name):
            now = self.transaction.now()
            self.transaction.execute(change.values(database_id=target, name=new_name, updated_at=now, updated_by=by))
        return self.existing(table_id)

    def alter(self, table_id: str, expected_schema_id: int, schema: TableSchema, by: str = "") -> Table:
        """The table with ``schema`` as its next schema. Raises ``Conflict`` when another alter came first."""
        row = self.lock(table_id)
        if row.schema_id != expected_schema_id:
            raise Conflict(
                f"the table was altered by someone else: its schema is {row.schema_id} now, not {expected_schema_id};"
                " read the table again and repeat the change",
                resource_type="TABLE",
                resource_name=row.name,
            )
        highest_id = max(schema.highest_field_id, self._highest_id(table_id, expected_schema_id))
        self._add_schema(table_id, expected_schema_id + 1, schema, highest_id)
        change = tables.update().where(tables.c.id == table_id)
        now = self.transaction.now()
        self.transaction.execute(change.values(schema_id=expected_schema_id + 1, updated_at=now, updated_by=by))
        return self.existing(table_id)

    def schema_at(self, table_id: str, schema_id: int) -> TableSchema:
        """The schema that the table had under ``schema_id``. Raises ``NotFound`` when the table is gone."""
        return _SCHEMAS.of(self._body_at(table_id, schema_id))

    def _body_at(self, table_id: str, schema_id: int) -> str:
        query = sa.select(table_schemas.c.body).where(
            table_schemas.c.table_id == table_id, table_schemas.c.schema_id == schema_id
        )
        body: str | None = self.transaction.execute(query).scalar_one_or_none()
        if body is None:
            raise not_found(Resource.TABLE, table_id)
        return body

    def highest_field_id(self, table: Table) -> int:
        """The largest id of any column or field that the table ever had: one of a dropped column must not come
        again.
        """
        return self._highest_id(table.id, table.schema_id)

    def _highest_id(self, table_id: str, schema_id: int) -> int:
        """Kept with each schema, so that an alter need not read all of those before it."""
        highest = -1
        for number in range(schema_id, -1, -1):
            body = self._body_at(table_id, number)
            known = json.loads(body).get(_HIGHEST_ID)
            highest = max(highest, _SCHEMAS.of(body).highest_field_id, -1 if known is None else known)
            if known is not None:
                break
        return highest

    def every_id(self) -> list[str]:
        """The ids of all tables."""
        return list(self.transaction.execute(sa.select(tables.c.id).order_by(tables.c.id)).scalars())

    def written(self, table_id: str) -> Written:
        """Bytes that the table's commits have written. Raises ``NotFound`` when the table is gone."""
        query = sa.select(tables.c.merged_bytes, tables.c.compacted_bytes, tables.c.changelog_bytes)
        row = self.transaction.execute(query.where(tables.c.id == table_id)).first()
        if row is None:
            raise not_found(Resource.TABLE, table_id)
        return Written(*row)

    def merges_since_full(self, table_id: str) -> int:
        """Merges committed since the table's last full compaction; 0 for a table that is gone."""
        query = sa.select(tables.c.merges_since_full).where(tables.c.id == table_id)
        return int(self.transaction.execute(query).scalar_one_or_none() or 0)

    def drop(self, database: str, name: str) -> Table:
        """Removes the table and all the catalog knows of it; its files become garbage. Raises ``NotFound``."""
        table = self.existing(self._lock_named(database, name))
        for naming in (tags, delta_versions, history_bases, snapshots, batches):  # they name what cannot go before them
            self.transaction.execute(naming.delete().where(naming.c.table_id == table.id))
        self.transaction.execute(tables.delete().where(tables.c.id == table.id))
        return table

    def lock(self, table_id: str) -> AnyRow:
        """The table's own row, ours until the transaction ends. Raises ``NotFound``.

        On SQLite the whole write transaction is the lock.
        """
        row = self.transaction.execute(_LOCKED, {"table": table_id}).first()
        if row is None:
            raise not_found(Resource.TABLE, table_id)
        self.transaction.touched.locked.add(table_id)
        return row

    def lock_all(self, table_ids: Collection[str]) -> dict[str, AnyRow]:
        """The rows of those of the tables that exist, by id, ours until the transaction ends. They are locked by id:
        no two that lock several deadlock.
        """
        found = {row.id: row for row in self.transaction.execute(_ALL_LOCKED, {"tables": [*table_ids]})}
        self.transaction.touched.locked.update(found)
        return found

    def _lock_named(self, database: str, name: str) -> str:
        """The id of the table ``database.name``, which nobody else renames or drops until the transaction ends."""
        table_id = self._row(database, name).id
        self.lock(table_id)
        if self._row(database, name).id != table_id:  # it changed while we waited for the lock
            raise not_found(Resource.TABLE, name)
        return str(table_id)

    def _row(self, database: str, name: str) -> AnyRow:
        row = self.transaction.execute(_BY_NAME, {"database": database, "table": name}).first()
        if row is None:
            self.databases.row(database)
            raise not_found(Resource.TABLE, name)
        return row

    def existing(self, table_id: str) -> Table:
        """The table with this id. Raises ``NotFound``."""
        table = self.find(table_id)
        if table is None:
            raise not_found(Resource.TABLE, table_id)
        return table

    def _add_schema(self, table_id: str, schema_id: int, schema: TableSchema, highest_id: int) -> None:
        body = _schema_text(schema, highest_id)
        self.transaction.execute(table_schemas.insert().values(table_id=table_id, schema_id=schema_id, body=body))

    def _refusing_twins(self, database: str, name: str) -> AbstractContextManager[None]:
        refusals: dict[str, KeyfoldError] = {
            "uq_tables_database_id_name": _already_exists(database, name),
            "fk_tables_database_id_databases": not_found(Resource.DATABASE, database),  # dropped a moment ago
        }
        return refusing(self.transaction.connection, refusals)
