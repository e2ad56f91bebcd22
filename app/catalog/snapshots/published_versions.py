"""Versions that other engines read: decided in the transaction of the commit that they follow, so that none can differ
from the catalog (docs/decisions/0031). Each keeps a snapshot, and with it the files that it names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from app.catalog.shared.models import batches, published_versions, snapshots, tables
from app.catalog.shared.transaction import Transaction
from app.catalog.tables.tables import Tables
from app.core.plan.columns.published_schemas import SCHEMAS
from app.core.plan.merging.published_runs import full_runs, readable_as, whole_runs
from app.core.table.history import BatchState, Run, Snapshot
from app.core.table.published import Format, PublishedVersion, formats_of
from app.core.table.schema import TableSchema

_COLUMNS = (
    published_versions.c.table_id,
    published_versions.c.format,
    published_versions.c.version,
    published_versions.c.snapshot_id,
    published_versions.c.as_of,
    published_versions.c.schema_id,
    published_versions.c.committed_at,
    published_versions.c.written_at,
)
_FORMATS = {one.value: one for one in Format}
_PENDING = published_versions.c.written_at.is_(None)


@dataclass(frozen=True)
class Behind:
    """The batches that a version does not have, and when the oldest of them was accepted."""

    batches: int
    records: int
    oldest_accepted_at: datetime | None


def _version(row: Sequence[Any]) -> PublishedVersion:
    table_id, format_name, *rest = row
    return PublishedVersion(table_id, _FORMATS[format_name], *rest)


def runs_of(version: PublishedVersion, kept: Snapshot) -> tuple[Run, ...]:
    """Return the runs that a version shows, of the snapshot that keeps them."""
    return kept.runs if version.as_of == kept.id else full_runs(kept.runs)


def _of(table_id: str, form: Format) -> sa.ColumnElement[bool]:
    return (published_versions.c.table_id == table_id) & (published_versions.c.format == form)


def _newest() -> sa.Subquery:
    """Return the newest version of each table in each format."""
    columns = published_versions.c
    place = sa.func.row_number().over(partition_by=(columns.table_id, columns.format), order_by=columns.version.desc())
    ranked = sa.select(*_COLUMNS, place.label("place")).subquery()
    return sa.select(*(ranked.c[column.name] for column in _COLUMNS)).where(ranked.c.place == 1).subquery()


@dataclass(frozen=True)
class PublishedVersions:
    """What the repository knows about what is published."""

    transaction: Transaction
    tables: Tables

    def follow(self, snapshot: Snapshot, schema_id: int) -> None:
        """Add the versions of a snapshot that was just committed, or of the current one after an ALTER: one in each
        form that the table is published in, none where readers of the files would not see the table in it. The caller
        holds the table's lock.
        """
        runs = whole_runs(snapshot.runs)
        if runs is not None:
            self._add(snapshot, snapshot.id, runs, schema_id)

    def follow_compaction(self, base: Snapshot, last: Snapshot, left: set[str]) -> None:
        """As ``follow``, of a full compaction of ``base`` whose last commit was ``last``, also where merges were
        committed meanwhile. ``left`` are the ids of the runs that hold the rows of ``base`` now.
        """
        row = self.tables.lock(base.table_id)
        if not self._exists(last):
            return  # it expired since it was committed: what came after it will be compacted, too
        if whole_runs(last.runs) is not None:
            self._add(last, last.id, last.runs, row.schema_id)
            return
        runs = full_runs(last.runs)
        # Partitions that were dropped or rolled back meanwhile: what is left is no snapshot that ever was.
        if {run.id for run in runs} == left:
            self._add(last, base.id, runs, row.schema_id)

    def _exists(self, snapshot: Snapshot) -> bool:
        mine = (snapshots.c.table_id == snapshot.table_id) & (snapshots.c.id == snapshot.id)
        return self.transaction.execute(sa.select(snapshots.c.id).where(mine)).first() is not None

    def _add(self, kept: Snapshot, as_of: int, runs: tuple[Run, ...], schema_id: int) -> None:
        schema = self.tables.schema_at(kept.table_id, schema_id)
        formats = formats_of(schema)
        if not formats or not self.readable(kept.table_id, runs, schema):
            return
        now = self.transaction.now()
        for form in formats:
            newest = self.newest(kept.table_id, form)
            if newest is None or self._brings_something(newest, as_of, schema):
                number = 0 if newest is None else newest.version + 1
                version = PublishedVersion(kept.table_id, form, number, kept.id, as_of, schema_id, now)
                values = {column.name: getattr(version, column.name) for column in _COLUMNS}
                self.transaction.execute(published_versions.insert().values(values))

    def readable(self, table_id: str, runs: tuple[Run, ...], schema: TableSchema) -> bool:
        """Return whether names and types of ``schema`` find the values of all ``runs``."""
        written = {run.schema_id for run in runs}
        return all(readable_as(self.tables.schema_at(table_id, one), schema) for one in written)

    def _brings_something(self, newest: PublishedVersion, as_of: int, schema: TableSchema) -> bool:
        if as_of != newest.as_of:
            return as_of > newest.as_of
        return self.shows_other_columns(newest, schema)

    def shows_other_columns(self, version: PublishedVersion, schema: TableSchema) -> bool:
        """Return whether the columns that a version shows are not those of ``schema``."""
        shown = SCHEMAS[version.format]
        return bool(shown(self.tables.schema_at(version.table_id, version.schema_id)) != shown(schema))

    def newest(self, table_id: str, form: Format) -> PublishedVersion | None:
        """Return the version that was decided last, written or not; None before the first."""
        query = sa.select(*_COLUMNS).where(_of(table_id, form)).order_by(published_versions.c.version.desc())
        row = self.transaction.execute(query.limit(1)).first()
        return None if row is None else _version(row)

    def page(self, table_id: str, form: Format) -> list[PublishedVersion]:
        """Return all versions that are kept, in order."""
        query = sa.select(*_COLUMNS).where(_of(table_id, form)).order_by(published_versions.c.version)
        return [_version(row) for row in self.transaction.execute(query)]

    def get(self, table_id: str, form: Format, number: int) -> PublishedVersion | None:
        """Return the version ``number``, None if it is not kept."""
        mine = _of(table_id, form) & (published_versions.c.version == number)
        row = self.transaction.execute(sa.select(*_COLUMNS).where(mine)).first()
        return None if row is None else _version(row)

    def table_ids(self, form: Format) -> set[str]:
        """Return the tables that have a version."""
        query = sa.select(published_versions.c.table_id).where(published_versions.c.format == form).distinct()
        return set(self.transaction.execute(query).scalars())

    def pending(self) -> list[PublishedVersion]:
        """Return those whose files are not there yet, each table's in order."""
        query = sa.select(*_COLUMNS).where(_PENDING)
        ordered = query.order_by(
            published_versions.c.table_id, published_versions.c.format, published_versions.c.version
        )
        return [_version(row) for row in self.transaction.execute(ordered)]

    def note_written(self, version: PublishedVersion) -> None:
        """The files of the version are there now."""
        mine = _of(version.table_id, version.format) & (published_versions.c.version == version.version)
        self.transaction.execute(
            published_versions.update().where(mine, _PENDING).values(written_at=self.transaction.now())
        )

    def write_anew(self) -> None:
        """No files are there: the warehouse is another one, without them."""
        self.transaction.execute(published_versions.update().values(written_at=None))

    def forget_before(self, version: PublishedVersion) -> None:
        """Forget the versions before ``version``: the snapshots that they kept expire by the table's options."""
        earlier = _of(version.table_id, version.format) & (published_versions.c.version < version.version)
        self.transaction.execute(published_versions.delete().where(earlier))

    def behind(self) -> list[PublishedVersion]:
        """Return the newest versions that are not of their table's current snapshot, or of another schema."""
        newest = _newest()
        query = (
            sa.select(*newest.c)
            .join(tables, tables.c.id == newest.c.table_id)
            .where((tables.c.snapshot_id != newest.c.as_of) | (tables.c.schema_id != newest.c.schema_id))
            .order_by(newest.c.table_id, newest.c.format)
        )
        return [_version(row) for row in self.transaction.execute(query)]

    def oldest_behind(self) -> list[tuple[PublishedVersion, datetime]]:
        """Return the newest versions that lack batches, with when the oldest of these was accepted."""
        newest, columns = _newest(), batches.c
        lacked = (columns.state == BatchState.MERGED) & (columns.snapshot_id > newest.c.as_of)
        query = (
            sa.select(*newest.c, sa.func.min(columns.accepted_at))
            .join(batches, columns.table_id == newest.c.table_id)
            .where(lacked | (columns.state == BatchState.STAGED))
            .group_by(*newest.c)
        )
        return [(_version(row[:-1]), row[-1]) for row in self.transaction.execute(query)]

    def behind_of(self, table_id: str, as_of: int) -> Behind:
        """Return the batches that snapshot ``as_of`` does not have: staged, or merged by a later one."""
        columns = batches.c
        later = (columns.state == BatchState.MERGED) & (columns.snapshot_id > as_of)
        query = sa.select(
            sa.func.count(), sa.func.coalesce(sa.func.sum(columns.records), 0), sa.func.min(columns.accepted_at)
        ).where(columns.table_id == table_id, later | (columns.state == BatchState.STAGED))
        count, records, oldest = self.transaction.execute(query).one()
        return Behind(count, int(records), oldest)
