"""Tags: names that keep a snapshot from expiring, with its runs and files."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from app.catalog.shared.failures import refusing
from app.catalog.shared.models import tags
from app.catalog.shared.transaction import AnyRow, Transaction
from app.catalog.snapshots.snapshots import Snapshots
from app.catalog.tables.tables import Tables
from app.core.errors import AlreadyExists, ErrorCode, Resource, not_found
from app.core.table.calendar import later
from app.core.table.history import Tag

_COLUMNS = (tags.c.name, tags.c.snapshot_id, tags.c.created_at, tags.c.expires_at)


def _tag(row: AnyRow) -> Tag:
    return Tag(row.name, row.snapshot_id, row.created_at, row.expires_at)


def _already_exists(name: str) -> AlreadyExists:
    return AlreadyExists(
        f"tag {name!r} exists already; delete it first, or choose another name",
        code=ErrorCode.TAG_ALREADY_EXISTS,
        resource_type="TAG",
        resource_name=name,
    )


@dataclass(frozen=True)
class Tags:
    """Reads and writes tags."""

    transaction: Transaction
    tables: Tables
    snapshots: Snapshots

    def create(self, table_id: str, name: str, number: int | None, retained: timedelta | None) -> Tag:
        """Return a tag on snapshot ``number``, by default the current one, that expires after ``retained``.

        Raise ``NotFound`` for the table or the snapshot, and ``AlreadyExists``.
        """
        current = self.tables.lock(table_id).snapshot_id  # the snapshot cannot expire meanwhile
        wanted = current if number is None else number
        if wanted is None:
            raise self.snapshots.not_found(table_id, "a snapshot to tag", "LATEST")
        snapshot = self.snapshots.get(table_id, wanted)
        now = self.transaction.now()
        tag = Tag(name, snapshot.id, now, None if retained is None else later(now, retained))
        with refusing(self.transaction.connection, {"pk_tags": _already_exists(name)}):
            values = {column.name: getattr(tag, column.name) for column in _COLUMNS}
            self.transaction.execute(tags.insert().values(table_id=table_id, **values))
        return tag

    def get(self, table_id: str, name: str) -> Tag:
        """Return the table's tag of this name. Raise ``NotFound``."""
        row = self.transaction.execute(sa.select(*_COLUMNS).where(_named(table_id, name))).first()
        if row is None:
            raise not_found(Resource.TAG, name)
        return _tag(row)

    def page(self, table_id: str, *, after: str | None = None, limit: int, prefix: str = "") -> list[Tag]:
        """Return up to ``limit`` tags in name order: those after the name ``after`` that begin with ``prefix``."""
        query = sa.select(*_COLUMNS).where(tags.c.table_id == table_id)
        if after is not None:
            query = query.where(tags.c.name > after)
        if prefix:
            query = query.where(tags.c.name.startswith(prefix, autoescape=True))
        return [_tag(row) for row in self.transaction.execute(query.order_by(tags.c.name).limit(limit))]

    def on(self, table_id: str, numbers: Collection[int]) -> list[Tag]:
        """Return the tags on the snapshots ``numbers``, in name order."""
        query = sa.select(*_COLUMNS).where(tags.c.table_id == table_id, tags.c.snapshot_id.in_(numbers))
        return [_tag(row) for row in self.transaction.execute(query.order_by(tags.c.name))]

    def delete(self, table_id: str, name: str) -> None:
        """Delete the tag; its snapshot expires by the table's options again. Raise ``NotFound``."""
        if self.transaction.execute(tags.delete().where(_named(table_id, name))).rowcount == 0:
            raise not_found(Resource.TAG, name)

    def expire(self, table_id: str, now: datetime) -> int:
        """Delete the tags that have expired at ``now``; return how many."""
        over = (tags.c.table_id == table_id) & (tags.c.expires_at <= now)
        return self.transaction.execute(tags.delete().where(over)).rowcount


def _named(table_id: str, name: str) -> sa.ColumnElement[bool]:
    return (tags.c.table_id == table_id) & (tags.c.name == name)
