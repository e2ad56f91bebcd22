"""Files of changelogs: those of each snapshot, and the changes of merges since a snapshot (docs/decisions/0054)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, fields

import sqlalchemy as sa

from app.catalog.shared.models import changelog_files, runs, snapshot_runs, snapshots
from app.catalog.shared.transaction import Transaction
from app.catalog.tables.tables import Tables
from app.core.plan.merging.published_runs import says_all_changes
from app.core.table.history import ChangelogFile, SnapshotKind
from app.core.table.published import Changes

_columns = changelog_files.c
_FILE = tuple(_columns[field.name] for field in fields(ChangelogFile))
# Followers can pass snapshots of these kinds: they change no rows, or a changelog names the rows.
_FOLLOWED = (SnapshotKind.MERGE, SnapshotKind.COMPACTION)


@dataclass(frozen=True)
class Changelogs:
    """Reads the files of changelogs."""

    transaction: Transaction
    tables: Tables

    def snapshot_files(self, table_id: str, snapshot_id: int) -> list[ChangelogFile]:
        """Return the files of a snapshot's changes, in order."""
        return [file for _, file in self._files(table_id, _columns.snapshot_id == snapshot_id)]

    def every_file(self, table_id: str) -> list[tuple[int, ChangelogFile]]:
        """Return the files of the table, each with the number of its snapshot."""
        return self._files(table_id, _columns.snapshot_id > 0)

    def live_files(self, table_id: str) -> set[str]:
        """Return the names of the files that a snapshot of the table names; all others are garbage."""
        query = sa.select(_columns.name).where(_columns.table_id == table_id)
        return set(self.transaction.execute(query).scalars())

    def written_under(self, table_id: str, numbers: Collection[int]) -> dict[int, int]:
        """Return the schema under which the newest run of each of the snapshots ``numbers`` was written, without
        expired ones; the changes of a merge have the same schema.
        """
        same_run = (runs.c.table_id == snapshot_runs.c.table_id) & (runs.c.id == snapshot_runs.c.run_id)
        query = (
            sa.select(snapshot_runs.c.snapshot_id, runs.c.schema_id)
            .join(runs, same_run)
            .where(snapshot_runs.c.table_id == table_id, snapshot_runs.c.snapshot_id.in_(numbers))
            .order_by(snapshot_runs.c.snapshot_id, snapshot_runs.c.position)
        )
        return {row.snapshot_id: row.schema_id for row in self.transaction.execute(query)}

    def between(self, table_id: str, base: int, last: int) -> list[Changes] | None:
        """Return the changes of the merges after snapshot ``base`` up to ``last``, in order. None if they are
        incomplete: snapshots have expired, rows changed by other commits than merges, or a merge wrote no changelog of
        rows.
        """
        condition = (snapshots.c.table_id == table_id) & snapshots.c.id.between(base + 1, last)
        query = sa.select(snapshots.c.id, snapshots.c.kind).where(condition).order_by(snapshots.c.id)
        kinds = {row.id: row.kind for row in self.transaction.execute(query)}
        if len(kinds) != last - base or any(kind not in _FOLLOWED for kind in kinds.values()):
            return None
        written = self.written_under(table_id, [number for number, kind in kinds.items() if kind is SnapshotKind.MERGE])
        if not all(says_all_changes(self.tables.schema_at(table_id, schema_id)) for schema_id in set(written.values())):
            return None
        files: dict[int, list[ChangelogFile]] = defaultdict(list)
        for number, file in self._files(table_id, _columns.snapshot_id.between(base + 1, last)):
            files[number].append(file)
        # A merge without any run has changed nothing.
        return [Changes(number, schema_id, tuple(files[number])) for number, schema_id in written.items()]

    def _files(self, table_id: str, which: sa.ColumnElement[bool]) -> list[tuple[int, ChangelogFile]]:
        query = sa.select(_columns.snapshot_id, *_FILE).where(_columns.table_id == table_id, which)
        ordered = query.order_by(_columns.snapshot_id, _columns.position)
        return [(number, ChangelogFile(*values)) for number, *values in self.transaction.execute(ordered)]
