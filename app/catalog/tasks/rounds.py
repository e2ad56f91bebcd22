"""Rounds: small merges of several tables claimed in one transaction and committed in another one, in as many statements
as one merge takes (docs/decisions/0041).

Every merge still has its own lease, snapshot and outcome. Unusual merges are left out of a round, and use
``app.catalog.tasks.claimed_tasks``. Several tables are always locked in the order of their ids, so that transactions
cannot deadlock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import sqlalchemy as sa

from app.catalog.batches.batches import Batches
from app.catalog.shared.models import batches, merges, tables
from app.catalog.shared.transaction import AnyRow, Transaction
from app.catalog.snapshots.commits import Commits
from app.catalog.snapshots.new_snapshots import NewSnapshot
from app.catalog.snapshots.snapshots import Snapshots
from app.catalog.tables.tables import TABLES, Tables, intact
from app.catalog.tasks.claimable import CLAIMABLE, OLDEST_FIRST, WAITS, at
from app.catalog.tasks.claimed_tasks import MERGED, ClaimedTask, lease_values
from app.catalog.tasks.stops import Stops
from app.catalog.tasks.tasks import UNFINISHED, task_of
from app.core.table.history import (
    Batch,
    BatchState,
    CatalogTask,
    Run,
    Snapshot,
    SnapshotKind,
    Table,
    TaskKind,
    TaskState,
)

MOST_SEEN = 1_000  # so that small merges are seen after many large ones that wait for a place
_OF_TABLE = (batches.c.table_id == merges.c.table_id) & (batches.c.state == BatchState.STAGED)
# Built once: building a statement takes as long as running it.
_WAITING = (
    sa.select(
        merges.c.id,
        merges.c.table_id,
        merges.c.state,
        sa.func.coalesce(sa.func.sum(batches.c.records), 0).label("records"),
        sa.func.coalesce(sa.func.sum(batches.c.size_bytes), 0).label("size_bytes"),
        sa.func.min(batches.c.schema_id).label("oldest"),
        sa.func.max(batches.c.schema_id).label("newest"),
    )
    .select_from(merges.join(batches, _OF_TABLE, isouter=True))
    .where(UNFINISHED, CLAIMABLE, merges.c.kind == TaskKind.MERGE)
    .where((merges.c.state != TaskState.PENDING) | merges.c.table_id.not_in(sa.bindparam("stopped", expanding=True)))
    .group_by(merges.c.id)
    .order_by(*OLDEST_FIRST)
    .limit(MOST_SEEN)
)
_TABLES = TABLES.add_columns(tables.c.merge_at_most).where(tables.c.id.in_(sa.bindparam("tables", expanding=True)))
_CHOSEN = merges.c.id.in_(sa.bindparam("tasks", expanding=True)) & merges.c.cancel_requested.is_(sa.false())
_WAITS_STILL = sa.select(merges).where(_CHOSEN, WAITS).with_for_update(skip_locked=True)
_HELD = (
    sa.select(merges.c.id, merges.c.lease_owner).where(_CHOSEN, merges.c.state == TaskState.RUNNING).with_for_update()
)
_TAKEN = (
    batches.update()
    .where(batches.c.table_id == sa.bindparam("table"), batches.c.state == BatchState.STAGED)
    .values(merge_id=sa.bindparam("merge"))
)
_BEGUN = (
    merges.update()
    .where(merges.c.id == sa.bindparam("task"))
    .values(
        {
            merges.c.state: TaskState.RUNNING,
            merges.c.started_at: sa.bindparam("now"),
            merges.c.lease_owner: sa.bindparam("owner"),
            merges.c.leased_at: sa.bindparam("now"),
            merges.c.lease_expires_at: sa.bindparam("until"),
            merges.c.progress: 0.0,
            merges.c.progress_detail: {},
            merges.c.batches: sa.bindparam("taken"),
        }
    )
)
_ENDED = (
    merges.update()
    .where(merges.c.id == sa.bindparam("merge"))
    .values(
        {
            merges.c.state: TaskState.SUCCEEDED,
            merges.c.finished_at: sa.bindparam("now"),
            merges.c.lease_expires_at: None,
            merges.c.progress: 1.0,
            merges.c.progress_detail: {},
            merges.c.snapshot_id: sa.bindparam("snapshot"),
            merges.c.rows: sa.bindparam("folded"),
            merges.c.records: sa.bindparam("of"),
        }
    )
)


@dataclass(frozen=True)
class WaitingMerge:
    """A merge that can be claimed, and the totals of its batches.

    ``plain``: it was never begun, all its batches have the table's present schema, and it may take all of them.
    """

    task_id: str
    table: Table
    records: int
    size_bytes: int
    plain: bool


@dataclass(frozen=True)
class FoldedMerge:
    """The result of a merge in a round: its runs, and the number of folded ``records``. ``compared``: the runs were
    compared with the rows of the snapshot with which the merge was claimed.
    """

    claimed: ClaimedTask
    runs: tuple[Run, ...]
    records: int
    compared: bool = False

    @property
    def rows(self) -> int:
        """State rows of its runs."""
        return sum(run.rows for run in self.runs)


@dataclass(frozen=True)
class Rounds:
    """Claims and commits rounds of merges."""

    transaction: Transaction
    tables: Tables
    batches: Batches
    snapshots: Snapshots
    stops: Stops

    def waiting(self) -> list[WaitingMerge]:
        """Return the merges that can be claimed, in the order in which they are due, ``MOST_SEEN`` at most; the query
        takes no lock.
        """
        now = self.transaction.now()
        rows = self.transaction.execute(_WAITING, {**at(now), "stopped": [*self.stops.stopped()]}).all()
        known = self._tables({row.table_id for row in rows})
        return [_waiting(row, *known[row.table_id]) for row in rows if row.table_id in known]

    def _tables(self, ids: Collection[str]) -> Mapping[str, tuple[Table, bool]]:
        """Return the tables that exist and are intact, and whether their merges take all batches."""
        if not ids:
            return {}
        rows = intact(self.transaction.execute(_TABLES, {"tables": [*ids]}))
        return {row.id: (table, row.merge_at_most is None) for row, table in rows}

    def claim(self, chosen: Sequence[WaitingMerge], owner: str, lease_seconds: float) -> list[ClaimedTask]:
        """Claim the ``plain`` merges that no other worker has claimed for ``owner``, and return them in the order
        given; each takes every staged batch of its table.
        """
        locked = self.tables.lock_all([waiting_merge.table.id for waiting_merge in chosen])
        unchanged = [
            waiting_merge
            for waiting_merge in chosen
            if waiting_merge.table.id in locked and _is_as_seen(waiting_merge, locked[waiting_merge.table.id])
        ]
        waits = self.transaction.execute(
            _WAITS_STILL, {"tasks": [waiting_merge.task_id for waiting_merge in unchanged]}
        )
        rows = {row.id: row for row in waits}
        claimable = [waiting_merge for waiting_merge in unchanged if waiting_merge.task_id in rows]
        if not claimable:
            return []
        self.transaction.execute(
            _TAKEN, [{"table": waiting_merge.table.id, "merge": waiting_merge.task_id} for waiting_merge in claimable]
        )
        taken = defaultdict(list)
        for batch in self.batches.claimed_by(*rows):
            taken[batch.merge_id].append(batch)
        now = self.transaction.now()
        lease = lease_values(owner, now, lease_seconds)
        begun = {"now": now, "owner": owner, "until": lease["lease_expires_at"]}
        counts = [
            {**begun, "task": waiting_merge.task_id, "taken": len(taken[waiting_merge.task_id])}
            for waiting_merge in claimable
        ]
        self.transaction.execute(_BEGUN, counts)
        return [
            self._claimed(
                waiting_merge,
                task_of(rows[waiting_merge.task_id]),
                taken[waiting_merge.task_id],
                locked[waiting_merge.table.id],
                owner,
                now,
            )
            for waiting_merge in claimable
        ]

    def _claimed(
        self,
        waiting_merge: WaitingMerge,
        pending: CatalogTask,
        taken: Sequence[Batch],
        row: AnyRow,
        owner: str,
        now: datetime,
    ) -> ClaimedTask:
        table = replace(waiting_merge.table, snapshot_id=row.snapshot_id)
        task = replace(pending, state=TaskState.RUNNING, started_at=now, batches=len(taken))
        return ClaimedTask(task, table, tuple(taken), self.snapshots.current_of(table), owner)

    def commit(self, folded: Sequence[FoldedMerge]) -> dict[str, Snapshot]:
        """Commit merges and return their snapshots, by the ids of the merges. Only merges that still hold their lease,
        and whose table has the same schema and claimed batches, are committed. Of those that were compared with rows,
        only merges whose table has the same rows.

        Their runs are appended to the current snapshot: a run of new records fits on any snapshot.
        """
        locked = self.tables.lock_all([folded_merge.claimed.table.id for folded_merge in folded])
        held = self.transaction.execute(_HELD, {"tasks": [folded_merge.claimed.task.id for folded_merge in folded]})
        owners = {row.id: row.lease_owner for row in held}
        fit = [
            folded_merge
            for folded_merge in folded
            if _still_fits(folded_merge, locked, owners) and self._on_same_rows(folded_merge, locked)
        ]
        if not fit:
            return {}
        made = self.snapshots.new_snapshots.commit(
            locked, [self._snapshot(folded_merge, locked[folded_merge.claimed.table.id]) for folded_merge in fit]
        )
        now = self.transaction.now()
        ended = [
            {
                "merge": folded_merge.claimed.task.id,
                "snapshot": snapshot.id,
                "now": now,
                "folded": folded_merge.rows,
                "of": folded_merge.records,
            }
            for folded_merge, snapshot in zip(fit, made, strict=True)
        ]
        self.transaction.execute(MERGED, [{name: merge[name] for name in ("merge", "snapshot")} for merge in ended])
        self.transaction.execute(_ENDED, ended)
        self._forget_failures([locked[snapshot.table_id] for snapshot in made])
        return {folded_merge.claimed.task.id: snapshot for folded_merge, snapshot in zip(fit, made, strict=True)}

    def _on_same_rows(self, folded_merge: FoldedMerge, locked: Mapping[str, AnyRow]) -> bool:
        base, table_id = folded_merge.claimed.base, folded_merge.claimed.table.id
        if not folded_merge.compared or base is None:
            return True
        return Commits(self.transaction).only_compacted(table_id, base.id, locked[table_id].snapshot_id)

    def _snapshot(self, folded_merge: FoldedMerge, row: AnyRow) -> NewSnapshot:
        base = self.snapshots.current_of(replace(folded_merge.claimed.table, snapshot_id=row.snapshot_id))
        runs = (*(base.runs if base else ()), *folded_merge.runs)
        return NewSnapshot(
            row.id, row.snapshot_id, runs, SnapshotKind.MERGE, folded_merge.claimed.task.id, added=folded_merge.runs
        )

    def _forget_failures(self, rows: Sequence[AnyRow]) -> None:
        failing = [row.id for row in rows if row.failed_merges]
        if failing:
            change = tables.update().where(tables.c.id.in_(failing))
            self.transaction.execute(change.values(failed_merges=0, merge_failed_at=None))


def _waiting(row: AnyRow, table: Table, takes_all: bool) -> WaitingMerge:
    present = row.oldest == row.newest == table.schema_id
    plain = row.state is TaskState.PENDING and takes_all and present
    return WaitingMerge(row.id, table, int(row.records), int(row.size_bytes), plain)


def _is_as_seen(waiting_merge: WaitingMerge, row: AnyRow) -> bool:
    return row.schema_id == waiting_merge.table.schema_id and row.merge_at_most is None


def _still_fits(folded_merge: FoldedMerge, locked: Mapping[str, AnyRow], owners: Mapping[str, str]) -> bool:
    row = locked.get(folded_merge.claimed.table.id)
    same = row is not None and row.schema_id == folded_merge.claimed.table.schema_id and row.merge_at_most is None
    return same and owners.get(folded_merge.claimed.task.id) == folded_merge.claimed.lease_owner
