"""Tables and the schemas they have had."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace

import sqlalchemy as sa

from app.catalog.shared import checksums
from app.catalog.shared.failures import refusing
from app.catalog.shared.models import (
    batches,
    databases,
    history_bases,
    published_versions,
    snapshots,
    table_schemas,
    tables,
    tags,
)
from app.catalog.shared.transaction import AnyRow, Transaction
from app.catalog.tables.databases import Databases, named
from app.catalog.tables.stored_schemas import StoredSchemas, schema_in
from app.core.errors import (
    AlreadyExists,
    Conflict,
    DamagedCatalog,
    ErrorCode,
    KeyfoldError,
    Resource,
    not_found,
)
from app.core.table.history import Table, Written
from app.core.table.schema import TableSchema


def table_of(row: AnyRow) -> Table:
    """Return the table that a row of ``TABLES`` describes. Raise ``DamagedCatalog``."""
    what = f"the row of table {row.id}"
    checksums.check(row.row_checksum, checksums.of_table(row), what)
    checksums.check(row.name_hash, checksums.of_name(row.database, row.name), what)
    schema = schema_in(row.id, row.schema_id, row)
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


def intact(rows: Iterable[AnyRow]) -> Iterator[tuple[AnyRow, Table]]:
    """Yield rows of ``TABLES`` with their tables, without damaged ones, so that work for all tables continues.
    Requests for a damaged table, and scrubs, report it.
    """
    for row in rows:
        with suppress(DamagedCatalog):
            yield row, table_of(row)


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
    tables.c.database_id,
    tables.c.name,
    tables.c.name_hash,
    tables.c.checksum.label("row_checksum"),
    tables.c.schema_id,
    table_schemas.c.body,
    table_schemas.c.checksum,
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

# Built once: building a statement takes as long as running it.
_BY_NAME = TABLES.where(databases.c.name == sa.bindparam("database"), tables.c.name == sa.bindparam("table"))
_OF_DATABASE = TABLES.where(databases.c.name == sa.bindparam("database")).order_by(tables.c.name)
_BY_ID = TABLES.where(tables.c.id == sa.bindparam("table"))
_BY_HASH = sa.select(tables.c.id).where(tables.c.name_hash == sa.bindparam("hash"))
_OWN = sa.select(tables).where(tables.c.id == sa.bindparam("table"))
_ALL_LOCKED = (
    sa.select(tables)
    .where(tables.c.id.in_(sa.bindparam("tables", expanding=True)))
    .order_by(tables.c.id)
    .with_for_update()
)
_LOCKED = _OWN.with_for_update()


@dataclass(frozen=True)
class Tables:
    """Reads and writes tables."""

    transaction: Transaction
    databases: Databases

    def create(self, database: str, name: str, schema: TableSchema, by: str = "") -> Table:
        """Return a new table with schema 0, made by the bearer of the token ``by``. Raise ``AlreadyExists``, or
        ``NotFound`` for the database.
        """
        database_id = self.databases.row(database).id
        now = self.transaction.now()
        table = Table(uuid.uuid4().hex, database, name, 0, schema, None, now, now, by, by)
        values = {
            "id": table.id,
            "database_id": database_id,
            "name": name,
            "name_hash": checksums.of_name(database, name),
            "schema_id": 0,
            "last_batch_number": 0,
            "created_at": now,
            "updated_at": now,
            "created_by": by,
            "updated_by": by,
        }
        with self._refusing_twins(database, name):
            self.transaction.execute(tables.insert().values(**values, checksum=checksums.of_new_table(values)))
        StoredSchemas(self.transaction).add(table.id, 0, schema, schema.highest_field_id)
        return table

    def count(self) -> int:
        """Return how many tables there are, in all databases."""
        return int(self.transaction.execute(sa.select(sa.func.count()).select_from(tables)).scalar_one())

    def get(self, database: str, name: str) -> Table:
        """Return the table ``database.name``.

        Raise ``NotFound``; its code says whether the database or the table is missing.
        """
        return table_of(self._row(database, name))

    def find(self, table_id: str) -> Table | None:
        """Return the table with this id, or None if it was dropped."""
        row = self.transaction.execute(_BY_ID, {"table": table_id}).first()
        if row is None:
            self._check_gone(table_id)
        return None if row is None else table_of(row)

    def _check_gone(self, table_id: str) -> None:
        """Raise ``DamagedCatalog`` if the table with this id exists, but without its database or schema."""
        row = self.transaction.execute(_OWN, {"table": table_id}).first()
        if row is not None:
            checksums.check_table(row)
            raise DamagedCatalog(f"table {table_id} has no database, or no schema {row.schema_id}")

    def current_snapshot(self, table_id: str) -> int | None:
        """Return the number of the table's current snapshot; None before the first commit, and if the table was
        dropped.
        """
        row = self.transaction.execute(_OWN, {"table": table_id}).first()
        if row is None:
            return None
        checksums.check_table(row)
        number: int | None = row.snapshot_id
        return number

    def page(
        self,
        database: str,
        *,
        after: str | None = None,
        limit: int,
        like: str | None = None,
        among: Collection[str] | None = None,
    ) -> list[Table]:
        """Return up to ``limit`` tables in name order: with names greater than ``after``, LIKE ``like``, and in
        ``among``.

        Raise ``NotFound`` for the database.
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
        """Return the names of the tables of the same page, all of them without a ``limit``. Raise as ``page``."""
        condition = tables.c.database_id == self.databases.row(database).id
        query = sa.select(tables.c.id, tables.c.name, tables.c.name_hash).where(condition)
        query = query.where(*named(tables.c.name, after, like, among))
        rows = self.transaction.execute(query.order_by(tables.c.name).limit(limit)).all()
        for row in rows:
            checksums.check(row.name_hash, checksums.of_name(database, row.name), f"the row of table {row.id}")
        return [row.name for row in rows]

    def every_one(self, database: str) -> list[Table]:
        """Return all tables of a database in name order. Raise as ``page``."""
        known = [table_of(row) for row in self.transaction.execute(_OF_DATABASE, {"database": database})]
        if not known:
            self.databases.row(database)
        return known

    def ids(self, database: str) -> list[str]:
        """Return the ids of the tables of a database. Raise ``NotFound``."""
        query = sa.select(tables.c.id).where(tables.c.database_id == self.databases.row(database).id)
        return [*self.transaction.execute(query).scalars()]

    def schema_sizes(self, database: str, names: Collection[str]) -> list[int]:
        """Return the approximate bytes of the schemas of the tables ``names``, in name order. Raise ``NotFound``."""
        size = sa.func.length(table_schemas.c.body)
        query = TABLES.with_only_columns(size).where(tables.c.database_id == self.databases.row(database).id)
        query = query.where(tables.c.name.in_(names)).order_by(tables.c.name)
        return [*self.transaction.execute(query).scalars()]

    def rename(self, database: str, name: str, new_database: str, new_name: str, by: str = "") -> Table:
        """Return the table under its new name, maybe in another database. Raise ``NotFound`` or ``AlreadyExists``."""
        row = self._lock_named(database, name)
        target = self.databases.row(new_database).id
        says = {"database_id": target, "name": new_name, "name_hash": checksums.of_name(new_database, new_name)}
        self._set(row, says, by, self._refusing_twins(new_database, new_name))
        return self.existing(row.id)

    def _set(
        self, row: AnyRow, says: Mapping[str, object], by: str, refusing_some: AbstractContextManager[None]
    ) -> None:
        """Update columns of a locked row."""
        dated = {"updated_at": self.transaction.now(), "updated_by": by, "checksum": checksums.of_table(row, **says)}
        with refusing_some:
            self.transaction.execute(tables.update().where(tables.c.id == row.id).values({**says, **dated}))

    def alter(self, table_id: str, expected_schema_id: int, schema: TableSchema, by: str = "") -> Table:
        """Return the table with ``schema`` as its next schema. Raise ``Conflict`` if another ALTER came first."""
        row = self.lock(table_id)
        if row.schema_id != expected_schema_id:
            raise Conflict(
                f"the table was altered by someone else: its schema is {row.schema_id} now, not {expected_schema_id};"
                " read the table again and repeat the change",
                resource_type="TABLE",
                resource_name=row.name,
            )
        stored = StoredSchemas(self.transaction)
        highest_id = max(schema.highest_field_id, stored.highest_id(table_id, expected_schema_id))
        stored.add(table_id, expected_schema_id + 1, schema, highest_id)
        self._set(row, {"schema_id": expected_schema_id + 1}, by, nullcontext())
        return self.existing(table_id)

    def schema_at(self, table_id: str, schema_id: int) -> TableSchema:
        """Return the schema that the table had under ``schema_id``. Raise ``NotFound`` if the table was dropped."""
        return StoredSchemas(self.transaction).at(table_id, schema_id)

    def under(self, table: Table, schema_id: int) -> Table:
        """Return the table with the schema that it had under ``schema_id``. Raise ``NotFound`` if it was dropped."""
        if schema_id == table.schema_id:
            return table
        return replace(table, schema_id=schema_id, schema=self.schema_at(table.id, schema_id))

    def highest_field_id(self, table: Table) -> int:
        """Return the largest id of any column or field that the table ever had: the id of a dropped column must not be
        used again.
        """
        return StoredSchemas(self.transaction).highest_id(table.id, table.schema_id)

    def every_id(self) -> list[str]:
        """Return the ids of all tables."""
        return list(self.transaction.execute(sa.select(tables.c.id).order_by(tables.c.id)).scalars())

    def every_intact(self) -> list[Table]:
        """Return the tables of all databases by name, without damaged ones."""
        rows = self.transaction.execute(TABLES.order_by(databases.c.name, tables.c.name))
        return [table for _, table in intact(rows)]

    def every_name(self) -> dict[str, str]:
        """Return the names of all tables with their databases', by id: including damaged ones."""
        joined = tables.outerjoin(databases, databases.c.id == tables.c.database_id)
        query = sa.select(tables.c.id, databases.c.name, tables.c.name).select_from(joined).order_by(tables.c.id)
        return {table_id: f"{database}.{name}" for table_id, database, name in self.transaction.execute(query)}

    def schema_id_of(self, table_id: str) -> int | None:
        """Return the number of the table's current schema; None if the table was dropped."""
        query = sa.select(tables.c.schema_id).where(tables.c.id == table_id)
        current: int | None = self.transaction.execute(query).scalar_one_or_none()
        return current

    def written(self, table_id: str) -> Written:
        """Return the bytes that the table's commits have written. Raise ``NotFound`` if the table was dropped."""
        query = sa.select(tables.c.merged_bytes, tables.c.compacted_bytes, tables.c.changelog_bytes)
        row = self.transaction.execute(query.where(tables.c.id == table_id)).first()
        if row is None:
            raise not_found(Resource.TABLE, table_id)
        return Written(*row)

    def merges_since_full(self, table_id: str) -> int:
        """Return how many merges were committed since the table's last full compaction; 0 for a table that is gone."""
        query = sa.select(tables.c.merges_since_full).where(tables.c.id == table_id)
        return int(self.transaction.execute(query).scalar_one_or_none() or 0)

    def drop(self, database: str, name: str) -> Table:
        """Delete the table and all its rows in the catalog; its files become garbage. Raise ``NotFound``."""
        table = self.existing(self._lock_named(database, name).id)
        for naming in (
            tags,
            published_versions,
            history_bases,
            snapshots,
            batches,
        ):  # they name what cannot go before them
            self.transaction.execute(naming.delete().where(naming.c.table_id == table.id))
        self.transaction.execute(tables.delete().where(tables.c.id == table.id))
        return table

    def lock(self, table_id: str) -> AnyRow:
        """Lock the table's row until the transaction ends, and return it. Raise ``NotFound``, ``DamagedCatalog``.

        On SQLite the whole write transaction is the lock.
        """
        row = self.transaction.execute(_LOCKED, {"table": table_id}).first()
        if row is None:
            raise not_found(Resource.TABLE, table_id)
        checksums.check_table(row)
        self.transaction.touched.locked.add(table_id)
        return row

    def lock_all(self, table_ids: Collection[str]) -> dict[str, AnyRow]:
        """Lock the rows of the tables that exist until the transaction ends, and return them by id. They are locked in
        the order of their ids, so that transactions cannot deadlock. Damaged rows are left out, as if they did not
        exist.
        """
        rows = self.transaction.execute(_ALL_LOCKED, {"tables": [*table_ids]})
        intact_rows = {row.id: row for row in rows if row.checksum in (None, checksums.of_table(row))}
        self.transaction.touched.locked.update(intact_rows)
        return intact_rows

    def _lock_named(self, database: str, name: str) -> AnyRow:
        """Lock the row of the table ``database.name`` and return it: nothing else renames or drops the table until the
        transaction ends.
        """
        row = self.lock(self._row(database, name).id)
        if self._row(database, name).id != row.id:  # it changed while we waited for the lock
            raise not_found(Resource.TABLE, name)
        return row

    def _row(self, database: str, name: str) -> AnyRow:
        row = self.transaction.execute(_BY_NAME, {"database": database, "table": name}).first()
        if row is None:
            row = self._strayed(database, name)
        if row is None:
            self.databases.row(database)
            raise not_found(Resource.TABLE, name)
        return row

    def _strayed(self, database: str, name: str) -> AnyRow | None:
        """Return the row of a table that cannot be found by name, because an index of the database file is damaged.

        Raise ``DamagedCatalog`` if the name in the row, or a joined row, is damaged.
        """
        for table_id in self.transaction.execute(_BY_HASH, {"hash": checksums.of_name(database, name)}).scalars():
            table = self.find(table_id)
            if table is not None and (table.database, table.name) == (database, name):
                return self.transaction.execute(_BY_ID, {"table": table_id}).one()
        return None

    def existing(self, table_id: str) -> Table:
        """Return the table with this id. Raise ``NotFound``."""
        table = self.find(table_id)
        if table is None:
            raise not_found(Resource.TABLE, table_id)
        return table

    def _refusing_twins(self, database: str, name: str) -> AbstractContextManager[None]:
        refusals: dict[str, KeyfoldError] = {
            "uq_tables_database_id_name": _already_exists(database, name),
            "fk_tables_database_id_databases": not_found(Resource.DATABASE, database),  # dropped a moment ago
        }
        return refusing(self.transaction.connection, refusals)
