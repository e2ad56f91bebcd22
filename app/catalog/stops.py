"""Tables whose merges wait for a compaction, because they have too many runs (``num-sorted-run.stop-trigger``)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import sqlalchemy as sa

from app.catalog.models import merges
from app.catalog.snapshots import Snapshots
from app.catalog.tables import Tables
from app.catalog.tasks import UNFINISHED
from app.catalog.transaction import Transaction
from app.core.table.compaction import Stop, stop_trigger
from app.core.table.history import TaskKind


@dataclass(frozen=True)
class Stops:
    """What the repository knows about merges that wait for compactions. Nothing of it is stored: it follows from a
    table's runs, its options and the compactions that were asked for.
    """

    transaction: Transaction
    tables: Tables
    snapshots: Snapshots

    def of(self, table_id: str) -> Stop | None:
        """Why merges of the table wait now; None while they do not."""
        active = _ACTIVE.where(merges.c.table_id == table_id).limit(1)
        compaction = self.transaction.execute(active).first()
        table = None if compaction is None else self.tables.find(table_id)
        if compaction is None or table is None:
            return None
        snapshot = self.snapshots.of(table)
        runs = Counter(run.partition for run in snapshot.runs) if snapshot else Counter[str | None]()
        most, trigger = max(runs.values(), default=0), stop_trigger(table.schema.parsed)
        stop = Stop(compaction.id, most, trigger, compaction.requested_at)
        return stop if stop.holds(self.transaction.now()) else None

    def stopped(self) -> frozenset[str]:
        """The tables whose merges wait, by id."""
        compacted = {row.table_id for row in self.transaction.execute(_ACTIVE).all()}
        return frozenset(table_id for table_id in compacted if self.of(table_id) is not None)

    def count(self) -> int:
        """How many tables' merges wait."""
        return len(self.stopped())


_ACTIVE = (
    sa.select(merges.c.id, merges.c.table_id, merges.c.requested_at)
    .where(UNFINISHED, merges.c.kind == TaskKind.COMPACTION)
    .order_by(merges.c.requested_at, merges.c.id)
)
"""The compactions that wait or run, the one asked for first before others."""
