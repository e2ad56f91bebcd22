"""Versions of Delta logs: decided in the transaction of the commit that they follow, so that a log cannot differ from
the catalog (docs/decisions/0031). Each keeps a snapshot, and with it the files that it names.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from app.catalog.shared.models import batches, delta_versions, snapshots, tables
from app.catalog.shared.transaction import AnyRow, Transaction
from app.catalog.tables.tables import Tables
from app.core.plan.columns.delta_schema import delta_schema
from app.core.plan.merging.delta_runs import full_runs, readable_as, whole_runs
from app.core.table.delta import DeltaVersion
from app.core.table.history import BatchState, Run, Snapshot
from app.core.table.schema import TableSchema

_COLUMNS = (
    delta_versions.c.table_id,
    delta_versions.c.version,
    delta_versions.c.snapshot_id,
    delta_versions.c.as_of,
    delta_versions.c.schema_id,
    delta_versions.c.committed_at,
    delta_versions.c.written_at,
)
_PENDING = delta_versions.c.written_at.is_(None)


@dataclass(frozen=True)
class Behind:
    """The batches that a version does not have, and when the oldest of them was accepted."""

    batches: int
    records: int
    oldest_accepted_at: datetime | None


def _version(row: AnyRow) -> DeltaVersion:
    return DeltaVersion(*row)


def runs_of(version: DeltaVersion, kept: Snapshot) -> tuple[Run, ...]:
    """Return the runs that a version shows, of the snapshot that keeps them."""
    return kept.runs if version.as_of == kept.id else full_runs(kept.runs)


@dataclass(frozen=True)
class DeltaVersions:
    """What the repository knows about Delta logs."""

    transaction: Transaction
    tables: Tables

    def follow(self, snapshot: Snapshot, schema_id: int) -> DeltaVersion | None:
        """Return the version of a snapshot that was just committed, or of the current one after an ALTER; None where
        the table does not publish, or readers of the files would not see the table in it. The caller holds the
        table's lock.
        """
        runs = whole_runs(snapshot.runs)
        return None if runs is None else self._add(snapshot, snapshot.id, runs, schema_id)

    def follow_compaction(self, base: Snapshot, last: Snapshot, left: set[str]) -> DeltaVersion | None:
        """As ``follow``, of a full compaction of ``base`` whose last commit was ``last``, also where merges were
        committed meanwhile. ``left`` are the ids of the runs that hold the rows of ``base`` now.
        """
        row = self.tables.lock(base.table_id)
        if not self._exists(last):
            return None  # it expired since it was committed: what came after it will be compacted, too
        if whole_runs(last.runs) is not None:
            return self._add(last, last.id, last.runs, row.schema_id)
        runs = full_runs(last.runs)
        # Partitions that were dropped or rolled back meanwhile: what is left is no snapshot that ever was.
        if {run.id for run in runs} != left:
            return None
        return self._add(last, base.id, runs, row.schema_id)

    def _exists(self, snapshot: Snapshot) -> bool:
        mine = (snapshots.c.table_id == snapshot.table_id) & (snapshots.c.id == snapshot.id)
        return self.transaction.execute(sa.select(snapshots.c.id).where(mine)).first() is not None

    def _add(self, kept: Snapshot, as_of: int, runs: tuple[Run, ...], schema_id: int) -> DeltaVersion | None:
        schema = self.tables.schema_at(kept.table_id, schema_id)
        if not schema.parsed["delta.publish"] or not self.readable(kept.table_id, runs, schema):
            return None
        newest = self.newest(kept.table_id)
        if newest is not None and not self._brings_something(newest, as_of, schema):
            return None
        number = 0 if newest is None else newest.version + 1
        version = DeltaVersion(kept.table_id, number, kept.id, as_of, schema_id, self.transaction.now())
        values = {column.name: getattr(version, column.name) for column in _COLUMNS}
        self.transaction.execute(delta_versions.insert().values(values))
        return version

    def readable(self, table_id: str, runs: tuple[Run, ...], schema: TableSchema) -> bool:
        """Return whether names and types of ``schema`` find the values of all ``runs``."""
        written = {run.schema_id for run in runs}
        return all(readable_as(self.tables.schema_at(table_id, one), schema) for one in written)

    def _brings_something(self, newest: DeltaVersion, as_of: int, schema: TableSchema) -> bool:
        if as_of != newest.as_of:
            return as_of > newest.as_of
        return self.shows_other_columns(newest, schema)

    def shows_other_columns(self, version: DeltaVersion, schema: TableSchema) -> bool:
        """Return whether the columns that a version shows are not those of ``schema``."""
        return delta_schema(self.tables.schema_at(version.table_id, version.schema_id)) != delta_schema(schema)

    def newest(self, table_id: str) -> DeltaVersion | None:
        """Return the version that was decided last, written or not; None before the first."""
        query = sa.select(*_COLUMNS).where(delta_versions.c.table_id == table_id)
        row = self.transaction.execute(query.order_by(delta_versions.c.version.desc()).limit(1)).first()
        return None if row is None else _version(row)

    def page(self, table_id: str) -> list[DeltaVersion]:
        """Return all versions that are kept, in order."""
        query = sa.select(*_COLUMNS).where(delta_versions.c.table_id == table_id)
        return [_version(row) for row in self.transaction.execute(query.order_by(delta_versions.c.version))]

    def get(self, table_id: str, number: int) -> DeltaVersion | None:
        """Return the version ``number``, None if it is not kept."""
        mine = (delta_versions.c.table_id == table_id) & (delta_versions.c.version == number)
        row = self.transaction.execute(sa.select(*_COLUMNS).where(mine)).first()
        return None if row is None else _version(row)

    def pending(self) -> list[tuple[str, int]]:
        """``(table id, version)`` of those that the logs do not have yet, each table's in order."""
        columns = (delta_versions.c.table_id, delta_versions.c.version)
        return [
            (row[0], row[1]) for row in self.transaction.execute(sa.select(*columns).where(_PENDING).order_by(*columns))
        ]

    def note_written(self, version: DeltaVersion) -> None:
        """The log has the version now."""
        mine = (delta_versions.c.table_id == version.table_id) & (delta_versions.c.version == version.version)
        self.transaction.execute(
            delta_versions.update().where(mine, _PENDING).values(written_at=self.transaction.now())
        )

    def write_anew(self) -> None:
        """No log has any version: the warehouse is another one, without them."""
        self.transaction.execute(delta_versions.update().values(written_at=None))

    def forget_before(self, table_id: str, version: int) -> None:
        """Forget the versions before ``version``: the snapshots that they kept expire by the table's options."""
        earlier = (delta_versions.c.table_id == table_id) & (delta_versions.c.version < version)
        self.transaction.execute(delta_versions.delete().where(earlier))

    def behind(self) -> list[tuple[str, datetime]]:
        """Return the tables whose newest version is not of the current snapshot, or of another schema, with its
        time.
        """
        newest = (
            sa.select(delta_versions.c.table_id, sa.func.max(delta_versions.c.version).label("version"))
            .group_by(delta_versions.c.table_id)
            .subquery()
        )
        query = (
            sa.select(tables.c.id, delta_versions.c.committed_at)
            .join(newest, newest.c.table_id == tables.c.id)
            .join(
                delta_versions,
                (delta_versions.c.table_id == newest.c.table_id) & (delta_versions.c.version == newest.c.version),
            )
            .where(
                (tables.c.snapshot_id != delta_versions.c.as_of) | (tables.c.schema_id != delta_versions.c.schema_id)
            )
            .order_by(tables.c.id)
        )
        return [(row[0], row[1]) for row in self.transaction.execute(query)]

    def behind_of(self, table_id: str, as_of: int) -> Behind:
        """Return the batches that snapshot ``as_of`` does not have: staged, or merged by a later one."""
        columns = batches.c
        later = (columns.state == BatchState.MERGED) & (columns.snapshot_id > as_of)
        query = sa.select(
            sa.func.count(), sa.func.coalesce(sa.func.sum(columns.records), 0), sa.func.min(columns.accepted_at)
        ).where(columns.table_id == table_id, later | (columns.state == BatchState.STAGED))
        count, records, oldest = self.transaction.execute(query).one()
        return Behind(count, int(records), oldest)
