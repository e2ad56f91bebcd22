"""Batches whose records cannot be folded, or whose file is damaged: they are set aside, so that merges of the table
continue (docs/decisions/0026).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from app.catalog.shared import checksums
from app.catalog.shared.models import batches, tables
from app.catalog.shared.transaction import Transaction
from app.catalog.tables.tables import Tables
from app.core.errors import Conflict, ErrorCode
from app.core.table.history import SET_ASIDE, Batch, BatchState, Blame

TRIES = {BatchState.DAMAGED: 3, BatchState.POISONED: 2}
"""After how many merges that one batch made fail it is set aside: what was not there may be back."""

_OF_TABLE = batches.c.table_id == sa.bindparam("table")
_COUNT = sa.select(sa.func.count()).where(_OF_TABLE, batches.c.state.in_(SET_ASIDE))
_LIMIT = sa.select(tables.c.merge_at_most).where(tables.c.id == sa.bindparam("table"))


@dataclass(frozen=True)
class SetAside:
    """Finds and sets aside batches that make merges fail."""

    transaction: Transaction
    tables: Tables

    def narrow(self, table_id: str, claimed: Sequence[Batch], blame: Blame) -> bool:
        """Record the failure of a merge of ``claimed`` that is due to its records. Return whether the next merge can
        start without a pause, because it takes fewer batches or leaves out the faulty one.
        """
        suspects = [batch for batch in claimed if batch.records and blame.batch_id in (None, batch.id)]
        if len(suspects) > 1:
            self._limit(table_id, max(1, len(claimed) // 2))
            return True
        if not suspects:
            return False
        [suspect] = suspects
        tried = sa.select(batches.c.tries).where(batches.c.id == suspect.id)
        tries: int = self.transaction.execute(tried).scalar_one() + 1
        away = tries >= TRIES[blame.state]
        values = {"state": blame.state, "fault": blame.fault} if away else {}
        self.transaction.execute(batches.update().where(batches.c.id == suspect.id).values(tries=tries, **values))
        if away:
            self._limit(table_id, None)
        return away

    def limit(self, table_id: str) -> int | None:
        """Return the most batches that the next merge takes; None: all."""
        number: int | None = self.transaction.execute(_LIMIT, {"table": table_id}).scalar()
        return number

    def goes_on(self, table_id: str) -> bool:
        """Return whether a successful merge has left batches to the next one. If not, lift the limit."""
        if self.limit(table_id) is None:
            return False
        condition = (batches.c.table_id == table_id) & (batches.c.state == BatchState.STAGED)
        if self.transaction.execute(sa.select(batches.c.id).where(condition).limit(1)).first() is not None:
            return True
        self._limit(table_id, None)
        return False

    def count(self, table_id: str) -> int:
        """Return how many batches are set aside."""
        return int(self.transaction.execute(_COUNT, {"table": table_id}).scalar_one())

    def take_back(self, batch: Batch) -> None:
        """Stage a batch that was set aside again, as if it had arrived now: batches that were merged since come before
        it.

        Raise ``Conflict`` for one that was not.
        """
        if batch.state not in SET_ASIDE:
            raise Conflict(
                f"batch {batch.id!r} is {batch.state}: only one that was set aside can be retried",
                code=ErrorCode.BATCH_NOT_SET_ASIDE,
                resource_type="BATCH",
                resource_name=batch.id,
            )
        number = self.tables.lock(batch.table_id).last_batch_number + 1
        self.transaction.execute(tables.update().where(tables.c.id == batch.table_id).values(last_batch_number=number))
        again: dict[str, Any] = {
            "state": BatchState.STAGED,
            "number": number,
            "tries": 0,
            "fault": None,
            "merge_id": None,
        }
        again["checksum"] = checksums.of_batch(replace(batch, number=number))
        self.transaction.execute(batches.update().where(batches.c.id == batch.id).values(again))

    def _limit(self, table_id: str, most: int | None) -> None:
        self.transaction.execute(tables.update().where(tables.c.id == table_id).values(merge_at_most=most))
