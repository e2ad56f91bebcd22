"""Lookups that wait until their answer contains a batch (``after=<batch id>``)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from app.catalog.database import CatalogDatabase
from app.core.errors import Conflict, ErrorCode, Resource, Unavailable, not_found
from app.core.table.history import SET_ASIDE, Batch, BatchState
from app.core.table.options.entries import Consistency
from app.services.rows.kept_views import Name, Views
from app.services.rows.views import View
from app.services.snapshots.heads import Heads

WAIT_SECONDS: Final = 60.0
_STEP_SECONDS: Final = 0.02
# Commits without a mark are seen after this time.
_LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True)
class AwaitedBatches:
    """Lets lookups wait, without a thread, until their view contains a batch; at most ``seconds``."""

    database: CatalogDatabase
    views: Views
    heads: Heads
    seconds: float = WAIT_SECONDS

    async def view_after(self, name: Name, batch_id: str, wanted: Consistency | None) -> View:
        """Return the table's view once it has the batch.

        Raise ``NotFound`` for the table, and for a batch that does not exist or was withdrawn; ``Conflict`` for one
        that is set aside; ``Unavailable`` if the batch is not in the view in time.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.seconds
        while True:
            mark = self.database.marks.last
            view, batch = await asyncio.to_thread(self._look, name, batch_id, wanted)
            if _has(view, batch):
                return view
            again = min(deadline, clock() + _LOOK_SECONDS)
            while clock() < again and mark == self.database.marks.last and not self.heads.stopped:
                await asyncio.sleep(_STEP_SECONDS)
            if clock() >= deadline or self.heads.stopped:
                raise Unavailable(
                    f"batch {batch_id} is not merged yet; retry, use consistency=latest, or request a merge:"
                    " POST …/merges"
                )

    def _look(self, name: Name, batch_id: str, wanted: Consistency | None) -> tuple[View, Batch]:
        with self.database.reading() as repository:
            table = repository.tables.get(*name)
            batch = repository.batches.get(table.id, batch_id)
        if batch.state is BatchState.DELETED:
            raise not_found(Resource.BATCH, batch_id, f"batch {batch_id!r} was withdrawn: no row will have it")
        if batch.state in SET_ASIDE:
            message = f"batch {batch_id!r} is set aside: {batch.fault}; withdraw it, or POST …/batches/{batch_id}:retry"
            raise Conflict(message, code=ErrorCode.BATCH_NOT_STAGED)
        return self.views.current(name, wanted), batch


def _has(view: View, batch: Batch) -> bool:
    return batch.number <= view.last_batch
