"""Commits: the kept snapshots and their origins, without their runs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from app.catalog.shared.models import batches, databases, snapshots, tables
from app.catalog.shared.transaction import Transaction
from app.core.table.history import BatchState, SnapshotKind


@dataclass(frozen=True)
class Commit:
    """A snapshot without its runs; ``schema_id`` is the table's schema at the commit, ``rewritten`` counts how often
    keys were removed from its files.
    """

    snapshot_id: int
    kind: SnapshotKind
    schema_id: int
    committed_at: datetime
    rewritten: int = 0


_STAGED = (
    sa.select(sa.func.count())
    .where(batches.c.table_id == tables.c.id, batches.c.state == BatchState.STAGED)
    .scalar_subquery()
)
# Built once: each process runs it every second.
_STATES = (
    sa.select(
        tables.c.id,
        databases.c.name,
        tables.c.name,
        tables.c.schema_id,
        tables.c.snapshot_id,
        tables.c.last_batch_number,
        _STAGED,
    )
    .join(databases, databases.c.id == tables.c.database_id)
    .where(tables.c.id.in_(sa.bindparam("tables", expanding=True)))
)
_COLUMNS = (snapshots.c.id, snapshots.c.kind, snapshots.c.schema_id, snapshots.c.committed_at, snapshots.c.rewritten)


@dataclass(frozen=True)
class Commits:
    """Reads the order of snapshots."""

    transaction: Transaction

    def kept(self, table_id: str) -> range:
        """Return the snapshots that are kept without a gap up to the current one, which is the last; empty before the
        first commit.

        A tagged snapshot whose successors have expired is not among them.
        """
        current = sa.select(tables.c.snapshot_id).where(tables.c.id == table_id)
        number = self.transaction.execute(current).scalar_one_or_none()
        if number is None:
            return range(1, 1)
        before = snapshots.alias("before")
        has_predecessor = (
            sa.select(before.c.id).where(before.c.table_id == table_id, before.c.id == snapshots.c.id - 1).exists()
        )
        first = sa.select(sa.func.max(snapshots.c.id)).where(
            snapshots.c.table_id == table_id, snapshots.c.id <= number, sa.not_(has_predecessor)
        )
        return range(self.transaction.execute(first).scalar_one(), number + 1)

    def find(self, table_id: str, number: int) -> Commit | None:
        """Return the snapshot of this number; None if there is none (any more)."""
        query = sa.select(*_COLUMNS).where(snapshots.c.table_id == table_id, snapshots.c.id == number)
        row = self.transaction.execute(query).first()
        return None if row is None else Commit(*row)

    def every(self, table_id: str) -> list[Commit]:
        """Return all snapshots that have not expired, in order."""
        query = sa.select(*_COLUMNS).where(snapshots.c.table_id == table_id).order_by(snapshots.c.id)
        return [Commit(*row) for row in self.transaction.execute(query)]

    def only_compacted(self, table_id: str, since: int, to: int) -> bool:
        """Return whether all snapshots after ``since``, up to ``to``, are compactions, which change no row. One that
        has expired may have been another commit.
        """
        query = sa.select(sa.func.count()).where(
            snapshots.c.table_id == table_id,
            snapshots.c.id.between(since + 1, to),
            snapshots.c.kind == SnapshotKind.COMPACTION,
        )
        return since == to or self.transaction.execute(query).scalar_one() == to - since

    def heads(self, table_ids: Collection[str]) -> dict[str, int]:
        """Return the current snapshot of each of the tables that exist; 0 before the first commit."""
        query = sa.select(tables.c.id, tables.c.snapshot_id).where(tables.c.id.in_(table_ids))
        return {row.id: row.snapshot_id or 0 for row in self.transaction.execute(query)}

    def states(self, table_ids: Collection[str]) -> dict[str, tuple[str, str, int, int | None, int, int]]:
        """Return for each table that exists the values that change when its lookups do: database, name, schema,
        current snapshot, last batch, and number of staged batches.
        """
        return {
            row[0]: (row[1], row[2], row[3], row[4], row[5], row[6])
            for row in self.transaction.execute(_STATES, {"tables": [*table_ids]})
        }
