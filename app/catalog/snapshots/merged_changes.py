"""What merges changed since a snapshot, as far as changelogs say all of it (docs/decisions/0054)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields

import sqlalchemy as sa

from app.catalog.shared.models import changelog_files, runs, snapshot_runs, snapshots
from app.catalog.shared.transaction import Transaction
from app.catalog.tables.tables import Tables
from app.core.plan.merging.published_runs import says_all_changes
from app.core.table.history import ChangelogFile, SnapshotKind
from app.core.table.published import Changes

_FILE = tuple(changelog_files.c[one.name] for one in fields(ChangelogFile))
_FOLLOWED = (SnapshotKind.MERGE, SnapshotKind.COMPACTION)  # which change no rows, or rows that a changelog names


@dataclass(frozen=True)
class MergedChanges:
    """What the repository knows about the changes of merges."""

    transaction: Transaction
    tables: Tables

    def between(self, table_id: str, base: int, last: int) -> list[Changes] | None:
        """Return the changes of the merges after snapshot ``base`` up to ``last``, in order. None where they do not
        say all: snapshots are gone, rows changed by something else than a merge, or a merge wrote no changelog of
        rows.
        """
        mine = (snapshots.c.table_id == table_id) & snapshots.c.id.between(base + 1, last)
        query = sa.select(snapshots.c.id, snapshots.c.kind).where(mine).order_by(snapshots.c.id)
        kinds = {row.id: row.kind for row in self.transaction.execute(query)}
        if len(kinds) != last - base or any(kind not in _FOLLOWED for kind in kinds.values()):
            return None
        written = self._written_under(table_id, base, last)  # none of a merge of records that leave no row
        merges = [number for number, kind in kinds.items() if kind is SnapshotKind.MERGE and number in written]
        if not all(says_all_changes(self.tables.schema_at(table_id, one)) for one in {written[n] for n in merges}):
            return None
        files = self._files(table_id, base, last)
        return [Changes(number, written[number], tuple(files[number])) for number in merges]

    def _written_under(self, table_id: str, base: int, last: int) -> dict[int, int]:
        """Return the schema of the newest run of each snapshot: of a merge the one that its changes have, too."""
        same_run = (runs.c.table_id == snapshot_runs.c.table_id) & (runs.c.id == snapshot_runs.c.run_id)
        query = (
            sa.select(snapshot_runs.c.snapshot_id, runs.c.schema_id)
            .join(runs, same_run)
            .where(snapshot_runs.c.table_id == table_id, snapshot_runs.c.snapshot_id.between(base + 1, last))
            .order_by(snapshot_runs.c.snapshot_id, snapshot_runs.c.position)
        )
        return {row.snapshot_id: row.schema_id for row in self.transaction.execute(query)}

    def _files(self, table_id: str, base: int, last: int) -> dict[int, list[ChangelogFile]]:
        columns = changelog_files.c
        query = (
            sa.select(columns.snapshot_id, *_FILE)
            .where(columns.table_id == table_id, columns.snapshot_id.between(base + 1, last))
            .order_by(columns.snapshot_id, columns.position)
        )
        found: dict[int, list[ChangelogFile]] = defaultdict(list)
        for number, *values in self.transaction.execute(query):
            found[number].append(ChangelogFile(*values))
        return found
