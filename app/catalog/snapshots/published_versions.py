"""Versions that other engines read. They are decided in the transaction of the commit that they follow, so that they
cannot differ from the catalog (docs/decisions/0031). Each keeps a snapshot with its files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import Enum, auto
from typing import Any

import sqlalchemy as sa

from app.catalog.shared.models import batches, published_versions, runs, snapshot_runs, snapshots, tables
from app.catalog.shared.transaction import Transaction
from app.catalog.snapshots.changelogs import Changelogs
from app.catalog.tables.tables import Tables
from app.core.errors import DamagedCatalog
from app.core.plan.columns.published_schemas import SCHEMAS
from app.core.plan.merging.published_runs import follows_merges, full_runs, readable_as, says_all_changes, whole_runs
from app.core.table.history import BatchState, Run, Snapshot
from app.core.table.published import Changes, FileCounts, Format, PublishedVersion, formats_of, named_snapshots
from app.core.table.schema import TableSchema

_COLUMNS = (
    published_versions.c.table_id,
    published_versions.c.format,
    published_versions.c.version,
    published_versions.c.snapshot_id,
    published_versions.c.base_id,
    published_versions.c.as_of,
    published_versions.c.schema_id,
    published_versions.c.committed_at,
    published_versions.c.written_at,
    published_versions.c.counts,
)
_FORMATS = {form.value: form for form in Format}
_PENDING = published_versions.c.written_at.is_(None)
# Bounds of the changes in a version. Readers open each file, a worker reads the keys of all rows, and
# each version lists again which rows are hidden (decision 54).
MOST_MERGES = 100
MOST_CHANGES = 1_000_000  # rows


class Next(Enum):
    """The next step for a table whose versions follow its merges."""

    NOTHING = auto()
    VERSION = auto()
    COMPACTION = auto()  # changelogs are incomplete, or too much has changed


@dataclass(frozen=True)
class Behind:
    """The batches that are not in a version, and when the oldest of them was accepted."""

    batches: int
    records: int
    oldest_accepted_at: datetime | None


def _version(row: Sequence[Any]) -> PublishedVersion:
    table_id, format_name, *rest, counts = row
    return PublishedVersion(table_id, _FORMATS[format_name], *(*rest, counts and FileCounts(**counts)))


def runs_of(version: PublishedVersion, snapshot: Snapshot) -> tuple[Run, ...]:
    """Return the runs that a version shows, from the snapshot that it keeps."""
    return snapshot.runs if version.base_id == snapshot.id else full_runs(snapshot.runs)


def _of(table_id: str, form: Format) -> sa.ColumnElement[bool]:
    return (published_versions.c.table_id == table_id) & (published_versions.c.format == form)


def _newest() -> sa.Subquery:
    """Return the newest version of each table in each format."""
    columns = published_versions.c
    place = sa.func.row_number().over(partition_by=(columns.table_id, columns.format), order_by=columns.version.desc())
    ranked = sa.select(*_COLUMNS, place.label("place")).subquery()
    return sa.select(*(ranked.c[column.name] for column in _COLUMNS)).where(ranked.c.place == 1).subquery()


# Built once: idle workers run it every few seconds, and building a statement takes as long as running it.
_NEWEST = _newest()
_BEHIND = (
    sa.select(*_NEWEST.c, tables.c.schema_id)
    .join(tables, tables.c.id == _NEWEST.c.table_id)
    .where((tables.c.snapshot_id != _NEWEST.c.as_of) | (tables.c.schema_id != _NEWEST.c.schema_id))
    .order_by(_NEWEST.c.table_id, _NEWEST.c.format)
)


@dataclass(frozen=True)
class PublishedVersions:
    """Reads and writes published versions."""

    transaction: Transaction
    tables: Tables
    changelogs: Changelogs

    def follow(self, snapshot: Snapshot, schema_id: int) -> None:
        """Add the versions of a snapshot that was just committed, or of the current one after an ALTER: one in each
        published format, none if the files would not show the table's rows. The caller holds the table's lock.
        """
        runs = whole_runs(snapshot.runs)
        if runs is not None:
            self._add(snapshot, snapshot.id, runs, schema_id)

    def follow_compaction(self, base: Snapshot, last: Snapshot, left: set[str]) -> None:
        """Add the versions after a full compaction of ``base`` whose last commit was ``last``, even if merges were
        committed since. ``left`` are the ids of the runs that now have the rows of ``base``.
        """
        row = self.tables.lock(base.table_id)
        if not self._exists(last):
            return  # it has expired since its commit: a later compaction will follow
        if whole_runs(last.runs) is not None:
            self._add(last, last.id, last.runs, row.schema_id)
            return
        runs = full_runs(last.runs)
        # Partitions were dropped or rolled back since: the remaining runs were never a snapshot.
        if {run.id for run in runs} == left:
            self._add(last, base.id, runs, row.schema_id, row.snapshot_id)

    def _exists(self, snapshot: Snapshot) -> bool:
        condition = (snapshots.c.table_id == snapshot.table_id) & (snapshots.c.id == snapshot.id)
        return self.transaction.execute(sa.select(snapshots.c.id).where(condition)).first() is not None

    def _add(
        self, snapshot: Snapshot, base_id: int, runs: tuple[Run, ...], schema_id: int, current: int | None = None
    ) -> None:
        """Add the version of ``runs`` and of the changes of merges up to ``current``, if changelogs have them."""
        schema = self.tables.schema_at(snapshot.table_id, schema_id)
        formats = formats_of(schema)
        if not formats or not self.readable(snapshot.table_id, {run.schema_id for run in runs}, schema):
            return
        as_of = current if current and self._says_all(snapshot.table_id, base_id, current, schema) else base_id
        for form in formats:
            newest = self.newest(snapshot.table_id, form)
            number = 0 if newest is None else newest.version + 1
            now = self.transaction.now()
            version = PublishedVersion(snapshot.table_id, form, number, snapshot.id, base_id, as_of, schema_id, now)
            if newest is None or self._brings_something(newest, version, schema):
                self._insert(version)

    def _insert(self, version: PublishedVersion) -> None:
        values = {column.name: getattr(version, column.name) for column in _COLUMNS}
        self.transaction.execute(published_versions.insert().values(values))

    def next_of(self, newest: PublishedVersion) -> Next:
        """Return what brings the format from ``newest`` to the table: nothing, a version, or a compaction first.

        ``NOTHING`` also if versions do not follow the table's merges. Raise ``NotFound`` if the table was dropped.
        """
        table_id = newest.table_id
        table = self.tables.existing(table_id)
        if table.snapshot_id is None or not follows_merges(table.schema, newest.format):
            return Next.NOTHING
        changes = self.changelogs.between(table_id, newest.base_id, table.snapshot_id)
        new_columns = self.shows_other_columns(newest, table.schema)
        if changes is not None and not new_columns and all(change.snapshot_id <= newest.as_of for change in changes):
            return Next.NOTHING
        readable = self.readable(table_id, self._schemas_of_runs(newest), table.schema)
        fits = changes is not None and self._fits(table_id, changes, table.schema)
        return Next.VERSION if readable and fits else Next.COMPACTION

    def follow_merges(self, newest: PublishedVersion) -> None:
        """Add the version after ``newest``, if ``next_of`` still returns one: the same runs, and the changes of all
        merges since.
        """
        row = self.tables.lock(newest.table_id)
        now = self.newest(newest.table_id, newest.format)
        if now is not None and now.version == newest.version and self.next_of(newest) is Next.VERSION:
            following = {"version": newest.version + 1, "as_of": row.snapshot_id, "schema_id": row.schema_id}
            at = self.transaction.now()
            self._insert(replace(newest, **following, committed_at=at, written_at=None, counts=None))

    def changes_of(self, version: PublishedVersion) -> list[Changes]:
        """Return the changes that a version shows on top of its runs, oldest first. Raise ``DamagedCatalog`` if they
        are missing: a version keeps them.
        """
        changes = self.changelogs.between(version.table_id, version.base_id, version.as_of)
        if changes is None:
            what = f"changelogs of {version.format} version {version.version} of table {version.table_id}"
            raise DamagedCatalog(f"{what} are gone")
        return changes

    def _says_all(self, table_id: str, base_id: int, current: int, schema: TableSchema) -> bool:
        changes = self.changelogs.between(table_id, base_id, current) if says_all_changes(schema) else None
        return changes is not None and self._fits(table_id, changes, schema)

    def _fits(self, table_id: str, changes: Sequence[Changes], schema: TableSchema) -> bool:
        """Return whether a version under ``schema`` may include these changes."""
        rows = sum(file.rows for change in changes for file in change.files)
        few = len(changes) <= MOST_MERGES and rows <= MOST_CHANGES
        return few and self.readable(table_id, {change.schema_id for change in changes}, schema)

    def _schemas_of_runs(self, version: PublishedVersion) -> set[int]:
        same_run = (runs.c.table_id == snapshot_runs.c.table_id) & (runs.c.id == snapshot_runs.c.run_id)
        named = (snapshot_runs.c.table_id == version.table_id) & (snapshot_runs.c.snapshot_id == version.snapshot_id)
        query = sa.select(runs.c.schema_id).join(snapshot_runs, same_run).where(named).distinct()
        return set(self.transaction.execute(query).scalars())

    def readable(self, table_id: str, written: set[int], schema: TableSchema) -> bool:
        """Return whether readers find the columns of ``schema``, by name and type, in files that were ``written``
        under these schemas.
        """
        return all(readable_as(self.tables.schema_at(table_id, schema_id), schema) for schema_id in written)

    def _brings_something(self, newest: PublishedVersion, version: PublishedVersion, schema: TableSchema) -> bool:
        if version.as_of != newest.as_of:
            return version.as_of > newest.as_of
        return version.base_id > newest.base_id or self.shows_other_columns(newest, schema)

    def keeps(self, table_id: str) -> set[int]:
        """Return the snapshots whose files a version of the table names."""
        columns = published_versions.c
        query = (
            sa.select(columns.snapshot_id, columns.base_id, sa.func.max(columns.as_of))
            .where(columns.table_id == table_id)
            .group_by(columns.snapshot_id, columns.base_id)
        )
        return {number for of_base in self.transaction.execute(query) for number in named_snapshots(*of_base)}

    def awaits(self, table_id: str) -> set[int]:
        """Return the snapshots that the next version of the table will name, if it follows merges."""
        table = self.tables.existing(table_id)
        newest = [self.newest(table_id, form) for form in Format if follows_merges(table.schema, form)]
        since = [range(version.as_of + 1, (table.snapshot_id or 0) + 1) for version in newest if version is not None]
        return {number for numbers in since if len(numbers) <= MOST_MERGES for number in numbers}

    def shows_other_columns(self, version: PublishedVersion, schema: TableSchema) -> bool:
        """Return whether a version shows other columns than those of ``schema``."""
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
        condition = _of(table_id, form) & (published_versions.c.version == number)
        row = self.transaction.execute(sa.select(*_COLUMNS).where(condition)).first()
        return None if row is None else _version(row)

    def table_ids(self, form: Format) -> set[str]:
        """Return the tables that have a version."""
        query = sa.select(published_versions.c.table_id).where(published_versions.c.format == form).distinct()
        return set(self.transaction.execute(query).scalars())

    def pending(self) -> list[PublishedVersion]:
        """Return the versions whose files are not written yet, those of each table in order."""
        query = sa.select(*_COLUMNS).where(_PENDING)
        ordered = query.order_by(
            published_versions.c.table_id, published_versions.c.format, published_versions.c.version
        )
        return [_version(row) for row in self.transaction.execute(ordered)]

    def note_written(self, version: PublishedVersion, counts: FileCounts | None) -> None:
        """Record that the files of the version are written, and their totals."""
        condition = _of(version.table_id, version.format) & (published_versions.c.version == version.version)
        written = {"written_at": self.transaction.now(), "counts": counts and asdict(counts)}
        self.transaction.execute(published_versions.update().where(condition, _PENDING).values(written))

    def mark_unwritten(self) -> None:
        """Record that no version has its files, because the warehouse is a new one."""
        self.transaction.execute(published_versions.update().values(written_at=None))

    def forget_before(self, version: PublishedVersion) -> None:
        """Delete the versions before ``version``: the snapshots that they kept expire by the table's options."""
        earlier = _of(version.table_id, version.format) & (published_versions.c.version < version.version)
        self.transaction.execute(published_versions.delete().where(earlier))

    def behind(self) -> list[tuple[PublishedVersion, int]]:
        """Return the newest versions that lag behind their table's current snapshot or schema, each with the id of
        that schema.
        """
        return [(_version(row[:-1]), row[-1]) for row in self.transaction.execute(_BEHIND)]

    def oldest_behind(self) -> list[tuple[PublishedVersion, datetime]]:
        """Return the newest versions that lack batches, with the time when the oldest of these was accepted."""
        newest, columns = _NEWEST, batches.c
        lacked = (columns.state == BatchState.MERGED) & (columns.snapshot_id > newest.c.as_of)
        query = (
            sa.select(*newest.c, sa.func.min(columns.accepted_at))
            .join(batches, columns.table_id == newest.c.table_id)
            .where(lacked | (columns.state == BatchState.STAGED))
            .group_by(*newest.c)
        )
        return [(_version(row[:-1]), row[-1]) for row in self.transaction.execute(query)]

    def behind_of(self, table_id: str, as_of: int) -> Behind:
        """Return the batches that are not in snapshot ``as_of``: staged, or merged into a later one."""
        columns = batches.c
        later = (columns.state == BatchState.MERGED) & (columns.snapshot_id > as_of)
        query = sa.select(
            sa.func.count(), sa.func.coalesce(sa.func.sum(columns.records), 0), sa.func.min(columns.accepted_at)
        ).where(columns.table_id == table_id, later | (columns.state == BatchState.STAGED))
        count, records, oldest = self.transaction.execute(query).one()
        return Behind(count, int(records), oldest)
