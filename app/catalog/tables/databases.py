"""Databases: namespaces of tables."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from app.catalog.shared.failures import refusing
from app.catalog.shared.models import databases, tables
from app.catalog.shared.transaction import AnyRow, Transaction
from app.core.errors import AlreadyExists, Conflict, ErrorCode, Resource, not_found
from app.core.table.history import Database


def _database(row: AnyRow) -> Database:
    times = (row.created_at, row.updated_at)
    return Database(row.id, row.name, row.options, *times, row.created_by, row.updated_by)


def matching(column: sa.ColumnElement[str], pattern: str) -> sa.ColumnElement[bool]:
    """Return SQL's LIKE, with a backslash as escape on both databases."""
    return column.like(pattern, escape="\\")


def named(
    column: sa.ColumnElement[str], after: str | None, like: str | None, among: Collection[str] | None
) -> Iterator[sa.ColumnElement[bool]]:
    """Yield the conditions of a page of names, for each argument that is not None: the name is greater than ``after``,
    is LIKE ``like``, is in ``among``.
    """
    if after is not None:
        yield column > after
    if like is not None:
        yield matching(column, like)
    if among is not None:
        yield column.in_(sorted(among))


@dataclass(frozen=True)
class Databases:
    """Reads and writes databases."""

    transaction: Transaction

    def create(self, name: str, options: Mapping[str, str], by: str = "") -> Database:
        """Return a new database, made by the bearer of the token ``by``. Raise ``AlreadyExists`` for a name in use."""
        now = self.transaction.now()
        database = Database(uuid.uuid4().hex, name, dict(options), now, now, by, by)
        exists = AlreadyExists(
            f"database {name!r} exists already",
            code=ErrorCode.DATABASE_ALREADY_EXISTS,
            resource_type="DATABASE",
            resource_name=name,
        )
        insert = databases.insert().values(
            id=database.id,
            name=name,
            options=database.options,
            created_at=now,
            updated_at=now,
            created_by=by,
            updated_by=by,
        )
        with refusing(self.transaction.connection, {"uq_databases_name": exists}):
            self.transaction.execute(insert)
        return database

    def count(self) -> int:
        """Return how many databases there are."""
        return int(self.transaction.execute(sa.select(sa.func.count()).select_from(databases)).scalar_one())

    def get(self, name: str) -> Database:
        """Return the database called ``name``. Raise ``NotFound``."""
        return _database(self.row(name))

    def page(
        self,
        *,
        after: str | None = None,
        limit: int,
        like: str | None = None,
        among: Collection[str] | None = None,
    ) -> list[Database]:
        """Return up to ``limit`` databases in name order: with names greater than ``after``, LIKE ``like``, and in
        ``among``.
        """
        query = sa.select(databases).order_by(databases.c.name).limit(limit)
        query = query.where(*named(databases.c.name, after, like, among))
        return [_database(row) for row in self.transaction.execute(query)]

    def names(
        self,
        *,
        after: str | None = None,
        limit: int,
        like: str | None = None,
        among: Collection[str] | None = None,
    ) -> list[str]:
        """Return the names of the databases of the same page."""
        query = sa.select(databases.c.name).order_by(databases.c.name).limit(limit)
        return [*self.transaction.execute(query.where(*named(databases.c.name, after, like, among))).scalars()]

    def update_options(
        self, name: str, removals: Collection[str], updates: Mapping[str, str], by: str = ""
    ) -> Database:
        """Remove the options ``removals``, set ``updates``, and return the database. Raise ``NotFound``."""
        row = self.row(name, lock=True)
        options = {key: value for key, value in row.options.items() if key not in removals} | dict(updates)
        change = (
            databases.update()
            .where(databases.c.id == row.id)
            .values(options=options, updated_at=self.transaction.now(), updated_by=by)
        )
        self.transaction.execute(change)
        return self.get(name)

    def drop(self, name: str) -> None:
        """Remove an empty database. Raise ``NotFound``, or ``Conflict`` if it has tables."""
        # The lock keeps new tables out until the commit: creating one needs a share lock on this row.
        row = self.row(name, lock=True)
        if self.transaction.execute(sa.select(tables.c.id).where(tables.c.database_id == row.id).limit(1)).first():
            raise Conflict(
                f"database {name!r} has tables; drop them first, or all of them with it: DELETE …?cascade=true",
                code=ErrorCode.DATABASE_NOT_EMPTY,
                resource_type="DATABASE",
                resource_name=name,
            )
        self.transaction.execute(databases.delete().where(databases.c.id == row.id))

    def row(self, name: str, *, lock: bool = False) -> AnyRow:
        """Return the database's row; with ``lock`` it is locked until the transaction ends. Raise ``NotFound``."""
        query = sa.select(databases).where(databases.c.name == name)
        row = self.transaction.execute(query.with_for_update() if lock else query).first()
        if row is None:
            raise not_found(Resource.DATABASE, name)
        return row
