"""The tasks that a worker has claimed: claimed under a lease, renewed, and ended by a commit or a failure.

No transaction stays open while Spark works. To end a task its lease must still be held, and a commit requires that its
base is still the current snapshot.

Locks on PostgreSQL are taken in one order, the table's row before the task's row, so that no two of these deadlock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from app.catalog.batches.batches import Batches
from app.catalog.batches.set_aside import SetAside
from app.catalog.shared.models import batches, forgettings, merges, tables
from app.catalog.shared.transaction import AnyRow, Transaction
from app.catalog.snapshots.snapshots import Snapshots
from app.catalog.tables.tables import Tables
from app.catalog.tasks.claimable import CLAIMABLE, OLDEST_FIRST, at
from app.catalog.tasks.stops import Stops
from app.catalog.tasks.tasks import UNFINISHED, Tasks, task_of
from app.core.errors import Conflict, NotFound
from app.core.table.compaction import MERGES_WAIT
from app.core.table.history import (
    Batch,
    BatchState,
    Blame,
    CatalogTask,
    ChangelogFile,
    Run,
    Snapshot,
    SnapshotKind,
    Table,
    TaskKind,
    TaskState,
    TaskTrigger,
)

_WAITING = (
    sa.select(merges.c.id, merges.c.table_id, merges.c.requested_at)
    .where(UNFINISHED, CLAIMABLE, merges.c.kind == TaskKind.COMPACTION)
    .order_by(*OLDEST_FIRST)
)
_LOCKED = sa.select(merges).where(merges.c.id == sa.bindparam("task"), CLAIMABLE).with_for_update(skip_locked=True)

MERGED = (
    batches.update()
    .where(batches.c.merge_id == sa.bindparam("merge"), batches.c.state == BatchState.STAGED)
    .values(state=BatchState.MERGED, snapshot_id=sa.bindparam("snapshot"))
)
"""The batches that a merge has claimed are in its snapshot."""


@dataclass(frozen=True)
class ClaimedTask:
    """A task that ``lease_owner`` may run now: fold ``batches`` (in number order) onto ``base``, or compact it."""

    task: CatalogTask
    table: Table
    batches: tuple[Batch, ...]
    base: Snapshot | None
    lease_owner: str


def lease_values(owner: str, now: datetime, seconds: float) -> dict[str, Any]:
    """Return the columns of a task with a new lease, which lasts that many seconds from now."""
    return {"lease_owner": owner, "leased_at": now, "lease_expires_at": now + timedelta(seconds=seconds)}


def _lease_lost(task_id: str, owner: str) -> Conflict:
    return Conflict(
        f"merge {task_id!r} is not leased to {owner!r} (any more); another worker has taken it over",
        resource_type="MERGE",
        resource_name=task_id,
    )


@dataclass(frozen=True)
class ClaimedTasks:
    """Claims tasks for a worker, renews their leases, commits their results and records their failures."""

    transaction: Transaction
    tables: Tables
    batches: Batches
    snapshots: Snapshots
    tasks: Tasks
    set_aside: SetAside
    stops: Stops

    def compactions_wait(self) -> bool:
        """Return whether there is a compaction to claim; the query takes no lock."""
        return bool(self._waiting_compactions(self.transaction.now()))

    def compactions(self) -> Sequence[AnyRow]:
        """Return the compactions that may be claimed: those that merges wait for first, then those that were begun,
        then the oldest.
        """
        now = self.transaction.now()
        waiting = self._waiting_compactions(now)
        stopped = self.stops.stopped() if waiting else frozenset()
        # One that has failed to end a wait of merges is not postponed for those that merges wait for now.
        return sorted(waiting, key=lambda row: row.table_id not in stopped and row.requested_at > now - MERGES_WAIT)

    def _waiting_compactions(self, now: datetime) -> Sequence[AnyRow]:
        return self.transaction.execute(_WAITING, at(now)).all()

    def renew(
        self,
        task_id: str,
        owner: str,
        lease_seconds: float,
        progress: float = 0.0,
        progress_detail: Mapping[str, int] | None = None,
    ) -> bool:
        """Renew the lease and store the progress. Return whether cancellation was requested.

        Raise ``Conflict`` if the lease is lost: another worker took over, the task has ended, or the table was
        dropped.
        """
        renewed = (
            merges.update()
            .where(merges.c.id == task_id, merges.c.lease_owner == owner, merges.c.state == TaskState.RUNNING)
            .values(
                **lease_values(owner, self.transaction.now(), lease_seconds),
                progress=progress,
                progress_detail=dict(progress_detail or {}),
            )
            .returning(merges.c.cancel_requested)
        )
        cancel_requested: bool | None = self.transaction.execute(renewed).scalar_one_or_none()
        if cancel_requested is None:
            raise _lease_lost(task_id, owner)
        return cancel_requested

    def hand_back(self, task_id: str, owner: str) -> None:
        """End the lease and clear its owner: the next worker that claims the task begins it again.

        Raise ``Conflict`` if the lease is lost.
        """
        self._hold(task_id, owner)
        over = {"lease_owner": None, "leased_at": self.transaction.now(), "lease_expires_at": self.transaction.now()}
        self.transaction.execute(merges.update().where(merges.c.id == task_id).values(over))

    def commit_merge(
        self,
        merge_id: str,
        owner: str,
        new_runs: Sequence[Run],
        *,
        base_snapshot_id: int | None,
        rows: int,
        records: int,
        changelog: Sequence[ChangelogFile] = (),
        detail: Mapping[str, int] | None = None,
    ) -> Snapshot:
        """Commit and return the snapshot after ``base_snapshot_id`` with ``new_runs`` (all its runs, oldest first).

        The claimed batches are in it and the merge has succeeded, all in the caller's transaction. Raise ``Conflict``
        if another commit came first, the lease is lost or the table was dropped.
        """
        table_id = self._hold(merge_id, owner).table_id
        snapshot = self.snapshots.commit(
            table_id, base_snapshot_id, new_runs, SnapshotKind.MERGE, merge_id=merge_id, changelog=changelog
        )
        self.transaction.execute(MERGED, {"merge": merge_id, "snapshot": snapshot.id})
        self._go_on(table_id)
        self._end(
            merge_id,
            TaskState.SUCCEEDED,
            progress=1.0,
            progress_detail=dict(detail or {}),
            snapshot_id=snapshot.id,
            rows=rows,
            records=records,
        )
        return snapshot

    def commit_compaction(
        self,
        task_id: str,
        owner: str,
        new_runs: Sequence[Run],
        *,
        base_snapshot_id: int | None,
        changelog: Sequence[ChangelogFile] = (),
    ) -> Snapshot:
        """Commit and return the snapshot after ``base_snapshot_id`` with ``new_runs``; the compaction continues under
        its lease.

        Raise ``Conflict`` if another commit came first, the lease is lost or the table was dropped.
        """
        table_id = self._hold(task_id, owner).table_id
        return self.snapshots.commit(
            table_id, base_snapshot_id, new_runs, SnapshotKind.COMPACTION, merge_id=task_id, changelog=changelog
        )

    def finish_compaction(
        self,
        task_id: str,
        owner: str,
        *,
        snapshot_id: int | None,
        rows: int,
        detail: Mapping[str, int] | None = None,
    ) -> CatalogTask:
        """Mark the compaction as succeeded and return it; ``snapshot_id`` is its last commit, ``rows`` the state rows
        that it wrote.

        Raise ``Conflict`` if the lease is lost.
        """
        self._hold(task_id, owner)
        done = {"progress": 1.0, "progress_detail": dict(detail or {}), "snapshot_id": snapshot_id, "rows": rows}
        return self._end(task_id, TaskState.SUCCEEDED, **done)

    def finish_merge_without_changes(self, merge_id: str, owner: str) -> CatalogTask:
        """Mark the merge as succeeded with the table's current snapshot, because its batches (if any) have no records,
        and return it.

        Raise ``Conflict`` if the lease is lost, ``ValueError`` if records would be lost.
        """
        table_id = self._hold(merge_id, owner).table_id
        claimed = self.batches.claimed_by(merge_id)
        if any(batch.records for batch in claimed):
            raise ValueError(f"merge {merge_id!r} has batches with records: it must commit them or fail")
        current = self.tables.existing(table_id).snapshot_id
        self.transaction.execute(MERGED, {"merge": merge_id, "snapshot": current})
        self._go_on(table_id)
        return self._end(merge_id, TaskState.SUCCEEDED, progress=1.0, progress_detail={}, snapshot_id=current)

    def fail(
        self, task_id: str, owner: str, error: str, cancelled: bool = False, blame: Blame | None = None
    ) -> CatalogTask:
        """Mark the task as failed (or cancelled) with ``error``, and return it. A merge's batches stay staged for the
        next merge, except those that are set aside because ``blame`` names them.

        Raise ``Conflict`` if the lease is lost.
        """
        held = self._hold(task_id, owner)
        claimed = self.batches.claimed_by(task_id)
        ended = self._give_up(task_id, TaskState.CANCELLED if cancelled else TaskState.FAILED, error)
        if held.kind is not TaskKind.MERGE or cancelled:
            return ended
        if blame is not None and self.set_aside.narrow(held.table_id, claimed, blame):
            self._forget_failures(held.table_id)
            self.tasks.request(held.table_id, held.trigger)
        else:
            self._count_failure(ended)
        return ended

    def take(self, task_id: str, table_id: str, owner: str, lease_seconds: float) -> ClaimedTask | None:
        """Return the claim of one task, or None if another worker was faster.

        The savepoint then releases the table's lock: two workers that wait for each other's table could deadlock.
        """
        with self.transaction.connection.begin_nested() as savepoint:
            row = self._lock_claimable(task_id, table_id)
            if row is None:
                savepoint.rollback()
                return None
            if row.cancel_requested:  # its worker died before it could cancel the task
                self._give_up(task_id, TaskState.CANCELLED, "cancelled on request")
                return None
            return self._claim(row, owner, lease_seconds)

    def _lock_claimable(self, task_id: str, table_id: str) -> AnyRow | None:
        """Return the task's row if it can still be claimed.

        A row that is locked (its late worker renews it, or a request cancels it) is skipped.
        """
        try:
            self.tables.lock(table_id)
        except NotFound:
            return None
        return self.transaction.execute(_LOCKED, {**at(self.transaction.now()), "task": task_id}).first()

    def _claim(self, row: AnyRow, owner: str, lease_seconds: float) -> ClaimedTask:
        """Return the claim of the task whose locked row is given."""
        taken = self._take_batches(row)
        now = self.transaction.now()
        start = (
            merges.update()
            .where(merges.c.id == row.id)
            .values(
                state=TaskState.RUNNING,
                started_at=now,
                **lease_values(owner, now, lease_seconds),
                progress=0.0,
                progress_detail={},
                batches=taken,
            )
            .returning(merges)
        )
        started = self.transaction.execute(start).one()
        return ClaimedTask(
            task=task_of(started),
            table=self.tables.existing(row.table_id),
            batches=tuple(self.batches.claimed_by(row.id)),
            base=self.snapshots.current(row.table_id),
            lease_owner=owner,
        )

    def _take_batches(self, row: AnyRow) -> int:
        """Claim the staged batches for a merge, all or the first (``SetAside.limit``). Return how many. A compaction
        takes none.
        """
        if row.kind is not TaskKind.MERGE:
            return 0
        condition = (batches.c.table_id == row.table_id) & (batches.c.state == BatchState.STAGED)
        # A state row never combines records to be forgotten with later ones: they could not be separated again.
        until = sa.select(sa.func.min(forgettings.c.until_batch)).where(
            forgettings.c.table_id == row.table_id, forgettings.c.forgotten_at.is_(None)
        )
        condition &= batches.c.number <= sa.func.coalesce(until.scalar_subquery(), batches.c.number)
        take = batches.update().where(condition)
        most = self.set_aside.limit(row.table_id)
        if most is not None:
            first = sa.select(batches.c.id).where(condition).order_by(batches.c.number).limit(most)
            take = take.where(batches.c.id.in_(first))
        return self.transaction.execute(take.values(merge_id=row.id)).rowcount

    def _hold(self, task_id: str, owner: str) -> AnyRow:
        """Return the task's row, locked after its table. Raise ``Conflict`` unless it runs under ``owner``'s lease.

        An expired lease that no other worker has claimed is still ``owner``'s.
        """
        table_id = self.transaction.execute(sa.select(merges.c.table_id).where(merges.c.id == task_id)).scalar()
        if table_id is None:
            raise _lease_lost(task_id, owner)
        try:
            self.tables.lock(table_id)
            row = self.tasks.row(table_id, task_id, lock=True)
        except NotFound as error:
            raise _lease_lost(task_id, owner) from error
        if row.state is not TaskState.RUNNING or row.lease_owner != owner:
            raise _lease_lost(task_id, owner)
        return row

    def _count_failure(self, merge: CatalogTask) -> None:
        change = tables.update().where(tables.c.id == merge.table_id)
        failed = tables.c.failed_merges + 1
        self.transaction.execute(change.values(failed_merges=failed, merge_failed_at=merge.finished_at))

    def _go_on(self, table_id: str) -> None:
        """Request the next merge at once if a successful merge has left batches to it."""
        self._forget_failures(table_id)
        if self.set_aside.goes_on(table_id):
            self.tasks.request(table_id, TaskTrigger.ROWS)

    def _forget_failures(self, table_id: str) -> None:
        failed = (tables.c.id == table_id) & (tables.c.failed_merges > 0)
        self.transaction.execute(tables.update().where(failed).values(failed_merges=0, merge_failed_at=None))

    def _give_up(self, task_id: str, state: TaskState, error: str) -> CatalogTask:
        """End a task and release its batches."""
        claimed = batches.update().where(batches.c.merge_id == task_id, batches.c.state == BatchState.STAGED)
        self.transaction.execute(claimed.values(merge_id=None))
        return self._end(task_id, state, error=error)

    def _end(self, task_id: str, state: TaskState, **values: Any) -> CatalogTask:
        end = (
            merges.update()
            .where(merges.c.id == task_id)
            .values(state=state, finished_at=self.transaction.now(), lease_expires_at=None, **values)
            .returning(merges)
        )
        return task_of(self.transaction.execute(end).one())
