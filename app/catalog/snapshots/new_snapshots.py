"""Commits of snapshots: of one table, or of several in one transaction, with the same few statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import sqlalchemy as sa

from app.catalog.shared import checksums
from app.catalog.shared.models import changelog_files, data_files, runs, snapshot_runs, snapshots, tables
from app.catalog.shared.transaction import AnyRow, Transaction
from app.catalog.snapshots.published_versions import PublishedVersions
from app.core.errors import Conflict
from app.core.table.history import ChangelogFile, Run, Snapshot, SnapshotKind

_OF_RUN = ("id", "schema_id", "partition", "full", "changed_at", "live_rows", "totals")
RUN_COLUMNS = tuple(runs.c[name] for name in _OF_RUN)
# Built once: building a statement takes as long as running it.
_SNAPSHOT_ADDED, _NAMED, _RUN_ADDED = snapshots.insert(), snapshot_runs.insert(), runs.insert()
_FILE_ADDED, _CHANGELOG_ADDED = data_files.insert(), changelog_files.insert()
_KNOWN = sa.select(runs.c.id).where(runs.c.table_id == sa.bindparam("table"))
_GROWN = {
    column: column + sa.bindparam(f"more_{column.name}")
    for column in (tables.c.merged_bytes, tables.c.compacted_bytes, tables.c.changelog_bytes)
}
_NOTED = (
    tables.update()
    .where(tables.c.id == sa.bindparam("table"))
    .values(
        {
            tables.c.snapshot_id: sa.bindparam("snapshot"),
            tables.c.checksum: sa.bindparam("row_checksum"),
            tables.c.merges_since_full: tables.c.merges_since_full * sa.bindparam("kept") + sa.bindparam("merges"),
            **_GROWN,
        }
    )
)


@dataclass(frozen=True)
class NewSnapshot:
    """The content of a commit: the snapshot after ``base_id`` names ``runs``, oldest first. ``added`` are those that
    are not in the catalog; None if that must be looked up.
    """

    table_id: str
    base_id: int | None
    runs: Sequence[Run]
    kind: SnapshotKind
    merge_id: str | None = None
    changelog: Sequence[ChangelogFile] = ()
    added: Sequence[Run] | None = None


@dataclass(frozen=True)
class NewSnapshots:
    """Writes the rows of commits. The caller has locked the tables."""

    transaction: Transaction
    published: PublishedVersions

    def commit(self, locked: Mapping[str, AnyRow], news: Sequence[NewSnapshot]) -> list[Snapshot]:
        """Commit ``news``, one for each table, and return their snapshots; ``locked`` are the rows of their tables.

        Raise ``Conflict`` if another commit came first; then none of them is stored.
        """
        for new in news:
            _check_base(locked[new.table_id], new)
        now = self.transaction.now()
        made = []
        for new in news:
            dated = tuple(run if run.changed_at else replace(run, changed_at=now) for run in new.runs)
            number, schema_id = (new.base_id or 0) + 1, locked[new.table_id].schema_id
            made.append(Snapshot(number, new.table_id, dated, new.merge_id, now, new.kind, schema_id))
        self._store(made, news, locked)
        for snapshot in made:
            self.published.follow(snapshot, snapshot.schema_id)
        return made

    def add_runs(self, table_id: str, new: Sequence[Run]) -> int:
        """Insert the runs that are not in the catalog yet. Return their bytes."""
        known = set(self.transaction.execute(_KNOWN, {"table": table_id}).scalars())
        missing = [run for run in new if run.id not in known]
        self._add_runs([(table_id, run) for run in missing])
        return sum(run.size_bytes for run in missing)

    def _store(self, made: Sequence[Snapshot], news: Sequence[NewSnapshot], locked: Mapping[str, AnyRow]) -> None:
        of_tables = []
        unknown = []
        for snapshot, new in zip(made, news, strict=True):
            if new.added is None:
                size = self.add_runs(snapshot.table_id, snapshot.runs)
            else:
                ids = {run.id for run in new.added}
                requested = [run for run in snapshot.runs if run.id in ids]
                unknown += [(snapshot.table_id, run) for run in requested]
                size = sum(run.size_bytes for run in requested)
            noted = _noted(snapshot, size, sum(file.size_bytes for file in new.changelog))
            checksum = checksums.of_table(locked[snapshot.table_id], snapshot_id=snapshot.id)
            of_tables.append({**noted, "row_checksum": checksum})
        self._add_runs(unknown)
        self._add(_SNAPSHOT_ADDED, [_snapshot_values(snapshot) for snapshot in made])
        self._add(_NAMED, [values for snapshot in made for values in _named_values(snapshot)])
        changes = [_changelog_values(snapshot, new.changelog) for snapshot, new in zip(made, news, strict=True)]
        self._add(_CHANGELOG_ADDED, [values for of_snapshot in changes for values in of_snapshot])
        self.transaction.execute(_NOTED, of_tables)

    def _add_runs(self, new: Sequence[tuple[str, Run]]) -> None:
        self._add(_RUN_ADDED, [{"table_id": table_id, **_run_values(table_id, run)} for table_id, run in new])
        files = [
            {"table_id": table_id, "run_id": run.id, "position": position, **asdict(file)}
            for table_id, run in new
            for position, file in enumerate(run.files)
        ]
        self._add(_FILE_ADDED, files)

    def _add(self, insert: sa.Insert, values: Sequence[Mapping[str, Any]]) -> None:
        if values:
            self.transaction.execute(insert, values)


def _check_base(row: AnyRow, new: NewSnapshot) -> None:
    if row.snapshot_id != new.base_id:
        raise Conflict(
            f"the table's current snapshot is {row.snapshot_id}, not {new.base_id}: another commit came first",
            resource_type="TABLE",
            resource_name=row.name,
        )


def _noted(snapshot: Snapshot, run_bytes: int, changelog_bytes: int) -> Mapping[str, Any]:
    """Return the columns of the table's row that the commit changes."""
    merged = snapshot.kind is SnapshotKind.MERGE
    full = snapshot.kind is SnapshotKind.COMPACTION and snapshot.runs and all(run.full for run in snapshot.runs)
    return {
        "table": snapshot.table_id,
        "snapshot": snapshot.id,
        "kept": 0 if full else 1,
        "merges": int(merged),
        "more_merged_bytes": run_bytes if merged else 0,
        "more_compacted_bytes": 0 if merged else run_bytes,
        "more_changelog_bytes": changelog_bytes,
    }


def _run_values(table_id: str, run: Run) -> dict[str, Any]:
    values = {column.name: getattr(run, column.name) for column in RUN_COLUMNS}
    return {**values, "checksum": checksums.of_run(table_id, run)}


def _snapshot_values(snapshot: Snapshot) -> Mapping[str, Any]:
    return {
        "table_id": snapshot.table_id,
        "id": snapshot.id,
        "merge_id": snapshot.merge_id,
        "committed_at": snapshot.committed_at,
        "kind": snapshot.kind,
        "schema_id": snapshot.schema_id,
        "checksum": checksums.of_snapshot_made(snapshot),
    }


def _named_values(snapshot: Snapshot) -> list[Mapping[str, Any]]:
    key = {"table_id": snapshot.table_id, "snapshot_id": snapshot.id}
    return [{**key, "position": position, "run_id": run.id} for position, run in enumerate(snapshot.runs)]


def _changelog_values(snapshot: Snapshot, files: Sequence[ChangelogFile]) -> list[Mapping[str, Any]]:
    key = {"table_id": snapshot.table_id, "snapshot_id": snapshot.id}
    return [{**key, "position": position, **asdict(file)} for position, file in enumerate(files)]
