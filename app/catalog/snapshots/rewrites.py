"""Rewrites: snapshots that are not just the previous one plus some batches. They are kept longer than the snapshots,
because they decide which merged records count for a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from app.catalog.shared.models import rewrites
from app.catalog.shared.transaction import AnyRow, Transaction
from app.core.table.history import Rewrite, Snapshot


def _rewrite(row: AnyRow) -> Rewrite:
    return Rewrite(row.snapshot_id, row.kind, row.committed_at, row.restored_from, tuple(row.partitions))


@dataclass(frozen=True)
class Rewrites:
    """Reads and writes rewrites."""

    transaction: Transaction

    def add(self, snapshot: Snapshot, *, restored_from: int | None = None, partitions: tuple[str, ...] = ()) -> None:
        """Record the rewrite of ``snapshot``, which was just committed."""
        values = {
            "table_id": snapshot.table_id,
            "snapshot_id": snapshot.id,
            "kind": snapshot.kind,
            "restored_from": restored_from,
            "partitions": list(partitions),
            "committed_at": snapshot.committed_at,
        }
        self.transaction.execute(rewrites.insert().values(values))

    def after(self, table_id: str, snapshot_id: int = 0) -> list[Rewrite]:
        """Return the rewrites after the snapshot of this number, in order."""
        query = sa.select(rewrites).where(rewrites.c.table_id == table_id, rewrites.c.snapshot_id > snapshot_id)
        return [_rewrite(row) for row in self.transaction.execute(query.order_by(rewrites.c.snapshot_id))]

    def forget(self, table_id: str, until_snapshot: int) -> int:
        """Delete the rewrites up to the snapshot of this number; return how many."""
        old = (rewrites.c.table_id == table_id) & (rewrites.c.snapshot_id <= until_snapshot)
        return self.transaction.execute(rewrites.delete().where(old)).rowcount
