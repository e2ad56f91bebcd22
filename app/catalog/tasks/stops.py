"""Tables whose merges wait for a compaction, because they have too many runs (``num-sorted-run.stop-trigger``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from app.catalog.shared.models import merges, runs, snapshot_runs, table_schemas, tables
from app.catalog.shared.transaction import AnyRow, Transaction
from app.catalog.tables.tables import TABLES, intact
from app.catalog.tasks.tasks import UNFINISHED
from app.core.table.compaction import MERGES_WAIT, STOP_TRIGGER, Stop, stop_trigger
from app.core.table.history import TaskKind


@dataclass(frozen=True)
class Stops:
    """Finds tables whose merges wait for compactions. This is not stored: it follows from a table's runs, its options
    and the requested compactions.
    """

    transaction: Transaction

    def find(self, table_id: str) -> Stop | None:
        """Return why merges of the table wait now; None while they do not."""
        return self._stops(_ACTIVE.where(merges.c.table_id == table_id)).get(table_id)

    def stopped(self) -> frozenset[str]:
        """Return the tables whose merges wait, by id; the number of queries does not depend on the tables."""
        return frozenset(self._stops(_ACTIVE))

    def count(self) -> int:
        """Return how many tables' merges wait."""
        return len(self.stopped())

    def _stops(self, active: sa.Select[AnyRow]) -> Mapping[str, Stop]:
        first: dict[str, AnyRow] = {}
        for row in self.transaction.execute(active):
            first.setdefault(row.table_id, row)
        now = self.transaction.now()
        recent = [
            table_id for table_id, row in first.items() if row.requested_at <= now < row.requested_at + MERGES_WAIT
        ]
        if not recent:
            return {}
        known = self.transaction.execute(_WITH_TRIGGER, {"tables": recent}).all()
        by_table = {row.id: stop_trigger(table.schema.parsed) for row, table in intact(known)}
        triggers = {table_id: trigger for table_id, trigger in by_table.items() if trigger is not None}
        counts = self._runs(triggers) if triggers else {}
        stops = [
            (table_id, Stop(first[table_id].id, count, triggers[table_id], first[table_id].requested_at))
            for table_id, count in counts.items()
        ]
        return {table_id: stop for table_id, stop in stops if stop.holds(now)}

    def _runs(self, table_ids: Collection[str]) -> Mapping[str, int]:
        """Return the most runs of one partition, for each of the tables that has runs."""
        now_named = (snapshot_runs.c.table_id == tables.c.id) & (snapshot_runs.c.snapshot_id == tables.c.snapshot_id)
        of_run = (runs.c.table_id == snapshot_runs.c.table_id) & (runs.c.id == snapshot_runs.c.run_id)
        query = (
            sa.select(tables.c.id, sa.func.count().label("runs"))
            .select_from(tables.join(snapshot_runs, now_named).join(runs, of_run))
            .where(tables.c.id.in_(table_ids))
            .group_by(tables.c.id, runs.c.partition)
        )
        most: dict[str, int] = {}
        for row in self.transaction.execute(query):
            most[row.id] = max(most.get(row.id, 0), row.runs)
        return most


_WITH_TRIGGER = TABLES.where(
    table_schemas.c.body.contains(f'"{STOP_TRIGGER}"', autoescape=True),
    tables.c.id.in_(sa.bindparam("tables", expanding=True)),
)
"""Tables whose schema names the option: few, and workers ask at every look."""
_ACTIVE = (
    sa.select(merges.c.id, merges.c.table_id, merges.c.requested_at)
    .where(UNFINISHED, merges.c.kind == TaskKind.COMPACTION)
    .order_by(merges.c.requested_at, merges.c.id)
)
"""The compactions that wait or run, in the order of their requests."""
