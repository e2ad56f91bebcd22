"""The tasks that the workers of all machines run, from their leases, and the number of waiting tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from app.catalog.shared.models import databases, merges, tables
from app.catalog.shared.transaction import AnyRow, Transaction
from app.core.table.history import TaskKind, TaskState


@dataclass(frozen=True)
class HeldLease:
    """A merge or compaction that ``owner`` works on; another worker may claim it once the lease has expired.

    ``progress`` is from 0 to 1.
    """

    database: str
    table: str
    task_id: str
    kind: TaskKind
    owner: str
    progress: float
    batches: int
    started_at: datetime | None
    renewed_at: datetime | None
    expires_at: datetime | None


@dataclass(frozen=True)
class Workers:
    """Reads the leases of workers. An idle worker holds no lease, and is not listed."""

    transaction: Transaction

    def leases(self, limit: int) -> list[HeldLease]:
        """Return up to ``limit`` tasks that run, the longest-running first."""
        query = sa.select(merges, databases.c.name.label("database"), tables.c.name.label("table"))
        query = query.join(tables, tables.c.id == merges.c.table_id).join(
            databases, databases.c.id == tables.c.database_id
        )
        query = query.where(merges.c.state == TaskState.RUNNING).order_by(merges.c.started_at, merges.c.id)
        return [_lease(row) for row in self.transaction.execute(query.limit(limit))]

    def waiting(self) -> Mapping[TaskKind, int]:
        """Return the number of pending tasks of each kind."""
        query = sa.select(merges.c.kind, sa.func.count()).where(merges.c.state == TaskState.PENDING)
        counts = {row[0]: row[1] for row in self.transaction.execute(query.group_by(merges.c.kind))}
        return {kind: counts.get(kind, 0) for kind in TaskKind}


def _lease(row: AnyRow) -> HeldLease:
    return HeldLease(
        database=row.database,
        table=row.table,
        task_id=row.id,
        kind=row.kind,
        owner=row.lease_owner or "",
        progress=row.progress,
        batches=row.batches,
        started_at=row.started_at,
        renewed_at=row.leased_at,
        expires_at=row.lease_expires_at,
    )
