"""Snapshots, the runs they name, and the files of runs. A run that many snapshots share is stored once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import sqlalchemy as sa

from app.catalog.shared import checksums
from app.catalog.shared.models import (
    data_files,
    history_bases,
    runs,
    snapshot_runs,
    snapshots,
    tags,
)
from app.catalog.shared.transaction import LARGEST_NUMBER, AnyRow, Transaction
from app.catalog.snapshots.new_snapshots import RUN_COLUMNS, NewSnapshot, NewSnapshots
from app.catalog.snapshots.published_versions import PublishedVersions
from app.catalog.snapshots.rewrites import Rewrites
from app.catalog.tables.tables import Tables
from app.core.errors import Conflict, NotFound, Resource, not_found
from app.core.table.history import ChangelogFile, DataFile, Run, Snapshot, SnapshotKind, Table

_DATA_FILE = tuple(data_files.c[field.name] for field in fields(DataFile))
# At most this many runs of one query have their files selected by name.
_RUNS_BY_NAME = 500


def _on(left: sa.Table, right: sa.Table, **columns: str) -> sa.ColumnElement[bool]:
    """Return the join of two tables on the table id and the given columns of both."""
    same = [left.c[left_name] == right.c[other] for left_name, other in columns.items()]
    return sa.and_(left.c.table_id == right.c.table_id, *same)


# Built once: building a statement takes as long as running it. For the snapshots of a table with these numbers:
_MINE = (snapshots.c.table_id == sa.bindparam("table")) & snapshots.c.id.between(
    sa.bindparam("first"), sa.bindparam("last")
)
_SNAPSHOTS = sa.select(snapshots).where(_MINE).order_by(snapshots.c.id.desc())
_REWRITTEN = sa.select(snapshots.c.rewritten).where(_MINE)
_RUNS = (
    sa.select(snapshot_runs.c.snapshot_id, *RUN_COLUMNS, runs.c.checksum)
    .join(snapshots, _on(snapshot_runs, snapshots, snapshot_id="id"))
    .join(runs, _on(snapshot_runs, runs, run_id="id"))
    .where(_MINE)
    .order_by(snapshot_runs.c.snapshot_id, snapshot_runs.c.position)
)
_OF_RUNS = (
    sa.select(data_files.c.run_id, *_DATA_FILE)
    .where(data_files.c.table_id == sa.bindparam("table"))
    .order_by(data_files.c.run_id, data_files.c.position)
)
_FILES_OF_RUNS = _OF_RUNS.where(data_files.c.run_id.in_(sa.bindparam("runs", expanding=True)))
_FILES = _OF_RUNS.where(
    data_files.c.run_id.in_(
        sa.select(snapshot_runs.c.run_id).join(snapshots, _on(snapshot_runs, snapshots, snapshot_id="id")).where(_MINE)
    )
)


def run_of(table_id: str, row: AnyRow, files: tuple[DataFile, ...]) -> Run:
    """Return the run. Raise ``DamagedCatalog`` if row and files do not match their checksum."""
    run = Run(row.id, row.schema_id, files, row.partition, row.full, row.changed_at, row.live_rows, row.totals)
    checksums.check(row.checksum, checksums.of_run(table_id, run), f"run {row.id} of table {table_id}")
    return run


def named_runs(table_id: str) -> sa.Select[Any]:
    """Return the query for the rows of the runs that any snapshot of the table names, by their ids."""
    named = sa.select(snapshot_runs.c.run_id).where(snapshot_runs.c.table_id == table_id)
    condition = (runs.c.table_id == table_id) & runs.c.id.in_(named)
    return sa.select(*RUN_COLUMNS, runs.c.checksum).where(condition).order_by(runs.c.id)


def _snapshot(row: AnyRow, of_snapshot: Sequence[Run]) -> Snapshot:
    """Return the snapshot. Raise ``DamagedCatalog`` if its runs do not match their checksum."""
    made = Snapshot(row.id, row.table_id, tuple(of_snapshot), row.merge_id, row.committed_at, row.kind, row.schema_id)
    what = checksums.of_runs_named(row.table_id, row.id)
    checksums.check(row.checksum, checksums.of_snapshot_made(made), what)
    return made


@dataclass(frozen=True)
class Snapshots:
    """Reads and writes snapshots."""

    transaction: Transaction
    tables: Tables
    published: PublishedVersions
    new_snapshots: NewSnapshots
    rewrites: Rewrites

    def current(self, table_id: str) -> Snapshot | None:
        """Return the table's current snapshot; None before the first commit and after the table was dropped."""
        current = self.tables.current_snapshot(table_id)
        return None if current is None else self._existing(table_id, current)

    def current_of(self, table: Table) -> Snapshot | None:
        """Return the current snapshot of ``table``, which must have been read in the same transaction."""
        return None if table.snapshot_id is None else self._existing(table.id, table.snapshot_id)

    def get(self, table_id: str, number: int) -> Snapshot:
        """Return the table's snapshot of this number. Raise ``NotFound``, with those that exist, if it does not exist
        or has expired.
        """
        rewritten = self._rewritten(table_id, number) if 0 < number <= LARGEST_NUMBER else None
        if rewritten is None:
            raise self.not_found(table_id, f"snapshot {number}", str(number))
        return self._existing(table_id, number, rewritten)

    def _rewritten(self, table_id: str, number: int) -> int | None:
        """Return how often keys were removed from the snapshot; None if it does not exist."""
        values = {"table": table_id, "first": number, "last": number}
        times: int | None = self.transaction.execute(_REWRITTEN, values).scalar_one_or_none()
        return times

    def find(self, table_id: str, number: int) -> Snapshot | None:
        """Return the table's snapshot of this number; None if there is none."""
        existing = self._load(table_id, number, number)
        return existing[0] if existing else None

    def ends(self, table_id: str) -> tuple[int, int] | None:
        """Return the numbers of the earliest and the latest snapshot, None before the first commit.

        Some between may have expired.
        """
        query = sa.select(sa.func.min(snapshots.c.id), sa.func.max(snapshots.c.id))
        row = self.transaction.execute(query.where(snapshots.c.table_id == table_id)).one()
        return None if row[0] is None else (row[0], row[1])

    def page(self, table_id: str, *, after: int | None = None, limit: int) -> list[Snapshot]:
        """Return up to ``limit`` snapshots, newest first, those older than number ``after``."""
        below = LARGEST_NUMBER if after is None else max(min(after, LARGEST_NUMBER), 0)
        page = (
            sa.select(snapshots.c.id)
            .where(snapshots.c.table_id == table_id, snapshots.c.id < below)
            .order_by(snapshots.c.id.desc())
            .limit(limit)
        )
        numbers = self.transaction.execute(page).scalars().all()
        if not numbers:
            return []
        return self._load(table_id, numbers[-1], numbers[0])

    def not_found(self, table_id: str, what: str, name: str) -> NotFound:
        """Return the error: the snapshot ``name``, described by ``what``, does not exist. It lists
        the existing ones.
        """
        known = self.ends(table_id)
        extent = "nothing was merged yet" if known is None else f"the earliest is {known[0]}, the latest {known[1]}"
        message = f"{what} does not exist (any more): {extent}; GET …/snapshots lists them"
        return not_found(Resource.SNAPSHOT, name, message)

    def rows_of(self, table_id: str, numbers: Collection[int]) -> dict[int, int]:
        """Return how many state rows each of the snapshots ``numbers`` has, of those that exist."""
        query = (
            sa.select(snapshots.c.id, sa.func.coalesce(sa.func.sum(data_files.c.rows), 0))
            .join(snapshot_runs, _on(snapshot_runs, snapshots, snapshot_id="id"), isouter=True)
            .join(data_files, _on(data_files, snapshot_runs, run_id="run_id"), isouter=True)
            .where(snapshots.c.table_id == table_id, snapshots.c.id.in_(numbers))
            .group_by(snapshots.c.id)
        )
        return {number: int(rows) for number, rows in self.transaction.execute(query)}

    def roll_back(self, table_id: str, number: int, *, base_snapshot_id: int | None = None) -> Snapshot:
        """Return a new snapshot with the runs of snapshot ``number``; no batch changes.

        Raise ``NotFound`` for the snapshot or the table, and ``Conflict`` if ``base_snapshot_id`` is given and is not
        current. The table is locked from the start, so that no other commit comes between.
        """
        current = self.tables.lock(table_id).snapshot_id
        target = self.get(table_id, number)
        base = current if base_snapshot_id is None else base_snapshot_id
        made = self.commit(table_id, base, target.runs, SnapshotKind.ROLLBACK)
        self.rewrites.add(made, restored_from=number)
        return made

    def drop_partitions(self, base: Snapshot, dropped: Collection[str]) -> Snapshot:
        """Return the snapshot after ``base`` without the runs of the partitions ``dropped`` (JSON texts). Raise
        ``Conflict``.
        """
        remaining = [run for run in base.runs if run.partition not in dropped]
        made = self.commit(base.table_id, base.id, remaining, SnapshotKind.PARTITION_DROP)
        self.rewrites.add(made, partitions=tuple(sorted(dropped)))
        return made

    def commit(
        self,
        table_id: str,
        base_snapshot_id: int | None,
        new_runs: Sequence[Run],
        kind: SnapshotKind,
        *,
        merge_id: str | None = None,
        changelog: Sequence[ChangelogFile] = (),
    ) -> Snapshot:
        """Return the snapshot after ``base_snapshot_id`` that names ``new_runs``; no batch changes.

        Raise ``Conflict`` if another commit came first (``base_snapshot_id`` is not current) or the table was dropped.
        """
        try:
            row = self.tables.lock(table_id)
        except NotFound as error:
            raise Conflict(f"the table {table_id!r} was dropped while it was being merged") from error
        new = NewSnapshot(table_id, base_snapshot_id, new_runs, kind, merge_id, changelog)
        [made] = self.new_snapshots.commit({table_id: row}, [new])
        return made

    def every_run(self, table_id: str) -> list[Run]:
        """Return the runs that any snapshot of the table names, each once."""
        of_run = self.every_data_file(table_id)
        return [run_of(table_id, row, tuple(of_run[row.id])) for row in self.transaction.execute(named_runs(table_id))]

    def every_data_file(self, table_id: str) -> dict[str, list[DataFile]]:
        """Return the files of the runs that any snapshot of the table names, in token order, by run."""
        return self._files(_FILES, {"table": table_id, "first": 0, "last": LARGEST_NUMBER})

    def live_run_ids(self, table_id: str | None = None) -> set[tuple[str, str]]:
        """Return ``(table id, run id)`` of every run (of one table) that a snapshot names; files of other runs are
        garbage.
        """
        query = sa.select(snapshot_runs.c.table_id, snapshot_runs.c.run_id).distinct()
        if table_id is not None:
            query = query.where(snapshot_runs.c.table_id == table_id)
        return {(row.table_id, row.run_id) for row in self.transaction.execute(query)}

    def expire(self, table_id: str, keep_ids: Collection[int]) -> list[int]:
        """Delete the snapshots that are neither current nor in ``keep_ids``, and that no tag, published version or
        history keeps, with the runs that only they named.

        Return their numbers in order. Raise ``NotFound`` if the table was dropped.
        """
        current = self.tables.lock(table_id).snapshot_id
        keeping = (tags, history_bases)
        queries = (sa.select(table.c.snapshot_id).where(table.c.table_id == table_id) for table in keeping)
        keep = {
            *keep_ids,
            current,
            *(number for query in queries for number in self.transaction.execute(query).scalars()),
        }
        keep |= self.published.keeps(table_id) | self.published.awaits(table_id)
        every = sa.select(snapshots.c.id).where(snapshots.c.table_id == table_id).order_by(snapshots.c.id)
        expired = [number for number in self.transaction.execute(every).scalars() if number not in keep]
        forget = snapshots.delete().where(snapshots.c.table_id == table_id, snapshots.c.id == sa.bindparam("number"))
        if expired:
            self.transaction.execute(forget, [{"number": number} for number in expired])
            named = sa.select(snapshot_runs.c.run_id).where(snapshot_runs.c.table_id == table_id)
            self.transaction.execute(runs.delete().where(runs.c.table_id == table_id, runs.c.id.not_in(named)))
        return expired

    def add_runs(self, table_id: str, new: Sequence[Run]) -> None:
        """Store runs that snapshots are about to name. The caller holds the table's lock."""
        self.new_snapshots.add_runs(table_id, new)

    def forget_keys(self, table_id: str, base_snapshot_id: int | None, new_runs: Sequence[Run]) -> Snapshot:
        """Commit the snapshot after ``base_snapshot_id`` with ``new_runs``, its runs without some keys, and return it.
        Raise ``Conflict``.
        """
        made = self.commit(table_id, base_snapshot_id, new_runs, SnapshotKind.FORGETTING)
        self.rewrites.add(made)
        return made

    def _existing(self, table_id: str, number: int, rewritten: int = 0) -> Snapshot:
        """Return a snapshot that exists in this transaction, without a query if it is cached. Keys are never removed
        from a current snapshot.
        """
        known = self.transaction.loaded.get(table_id, number, rewritten)
        if known is not None:
            return known
        existing = self._load(table_id, number, number)
        if not existing:  # a writing transaction that holds no lock sees it expire
            raise self.not_found(table_id, f"snapshot {number}", str(number))
        if not self.transaction.writes:
            self.transaction.loaded.keep(existing[0], rewritten)
        return existing[0]

    def _load(self, table_id: str, first: int, last: int) -> list[Snapshot]:
        """Return the snapshots with the numbers ``first`` to ``last`` that exist, newest first, with their runs: with
        three queries in all. Files of cached runs are not read again, so that the cost of a commit depends on what it
        adds, not on the size of the table.
        """
        values = {"table": table_id, "first": first, "last": last}
        rows = self.transaction.execute(_SNAPSHOTS, values).all()
        if not rows:
            return []
        of_snapshot: dict[int, list[Run]] = defaultdict(list)
        known = self.transaction.loaded.runs(table_id)
        named_runs = self.transaction.execute(_RUNS, values).all()
        new = {row.id for row in named_runs} - known.keys()
        if not new:
            files = {}
        elif len(new) <= _RUNS_BY_NAME:
            files = self._files(_FILES_OF_RUNS, {"table": table_id, "runs": [*new]})
        else:
            files = self._files(_FILES, values)
        for row in named_runs:
            run = known.get(row.id)
            of_snapshot[row.snapshot_id].append(run or run_of(table_id, row, tuple(files[row.id])))
        return [_snapshot(row, of_snapshot[row.id]) for row in rows]

    def _files(self, query: sa.Select[AnyRow], values: Mapping[str, object]) -> dict[str, list[DataFile]]:
        """Return the files that ``query`` selects, in token order, by run."""
        files: dict[str, list[DataFile]] = defaultdict(list)
        for run_id, *of_file in self.transaction.execute(query, values):
            files[run_id].append(DataFile(*of_file))
        return files
