"""Rewrites: the snapshots that are not what came before them and some batches. They are remembered longer than the
snapshots: without them it is unknown which merged records a row is made of.
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
    """What the repository knows about them."""

    transaction: Transaction

    def add(self, snapshot: Snapshot, *, restored_from: int | None = None, partitions: tuple[str, ...] = ()) -> None:
        """Remember what ``snapshot``, which was just committed, did."""
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
        """Return those that came after the snapshot of this number, in order."""
        query = sa.select(rewrites).where(rewrites.c.table_id == table_id, rewrites.c.snapshot_id > snapshot_id)
        return [_rewrite(row) for row in self.transaction.execute(query.order_by(rewrites.c.snapshot_id))]

    def forget(self, table_id: str, until_snapshot: int) -> int:
        """Forget those up to the snapshot of this number; return how many."""
        old = (rewrites.c.table_id == table_id) & (rewrites.c.snapshot_id <= until_snapshot)
        return self.transaction.execute(rewrites.delete().where(old)).rowcount
