"""The counts of late records: JSON of the service, stored with each merge and deleted with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from app.catalog.shared.models import late_merges, merges
from app.catalog.shared.transaction import Transaction
from app.core.table.history import TaskKind, TaskState

_AT_ONCE = 100  # merges that are read of a cursor


@dataclass(frozen=True)
class CountedMerge:
    """A merge that folded ``records``; ``lateness`` is None if it was not counted."""

    finished_at: datetime
    records: int
    lateness: Mapping[str, Any] | None


@dataclass(frozen=True)
class LateMerges:
    """Reads and writes the counts of late records."""

    transaction: Transaction

    def note(self, merge_id: str, lateness: Mapping[str, Any]) -> None:
        """Store the counts, unless the merge has counts already, or was deleted."""
        noted = self.transaction.execute(sa.select(late_merges.c.merge_id).where(late_merges.c.merge_id == merge_id))
        merge = self.transaction.execute(sa.select(merges.c.id).where(merges.c.id == merge_id).with_for_update())
        if noted.first() is None and merge.first() is not None:
            self.transaction.execute(late_merges.insert().values(merge_id=merge_id, counted=dict(lateness)))

    def since(self, table_id: str, since: datetime | None, most: int) -> Iterator[CountedMerge]:
        """Yield the newest merges of the table that folded records, ``most`` of them, of those that ended ``since``;
        newest first. They are read lazily, so that few are in memory at a time.
        """
        both = merges.join(late_merges, late_merges.c.merge_id == merges.c.id, isouter=True)
        query = sa.select(merges.c.finished_at, merges.c.records, late_merges.c.counted).select_from(both)
        query = query.where(
            merges.c.table_id == table_id,
            merges.c.state == TaskState.SUCCEEDED,
            merges.c.kind == TaskKind.MERGE,
            merges.c.records > 0,
        )
        if since is not None:
            query = query.where(merges.c.finished_at >= since)
        newest = query.order_by(merges.c.finished_at.desc(), merges.c.id).limit(most)
        for row in self.transaction.execute(newest.execution_options(yield_per=_AT_ONCE)):
            yield CountedMerge(*row)
