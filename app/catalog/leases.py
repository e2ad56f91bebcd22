"""Merges as the worker runs them: claimed under a lease, renewed, and ended by a commit or a failure.

No transaction stays open while Spark works. Whoever ends a merge must still hold its lease, and a commit must still
find the snapshot that it began with.

Locks on PostgreSQL are taken in one order, the table's row before the merge's row, so that no two of these deadlock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from app.catalog.batches import Batches
from app.catalog.models import batches, merges, tables
from app.catalog.snapshots import Snapshots
from app.catalog.tables import Tables
from app.catalog.tasks import Tasks, merge_of
from app.catalog.transaction import AnyRow, Transaction
from app.core.errors import Conflict, NotFound
from app.core.table.history import (
    Batch,
    BatchState,
    ChangelogFile,
    Merge,
    MergeState,
    Run,
    Snapshot,
    SnapshotKind,
    Table,
    TaskKind,
)

_CANDIDATES = 100  # more tables than that wait for the next call
# A lease that was taken so far in the future was taken before the clock was set back: its end says nothing. Smaller
# steps only lengthen a lease by as much.
_CLOCK_STEP = timedelta(seconds=5)


@dataclass(frozen=True)
class ClaimedMerge:
    """A merge that ``lease_owner`` may run now: fold ``batches`` (in number order) onto ``base``."""

    merge: Merge
    table: Table
    batches: tuple[Batch, ...]
    base: Snapshot | None
    lease_owner: str


def _claimable(now: datetime) -> sa.ColumnElement[bool]:
    """Merges (compactions) that wait while none of their table runs, and those whose worker let the lease expire.

    Whoever still works on one whose lease only seems over, because the clock was set, cannot commit any more.
    """
    running = merges.alias("running")
    nothing_runs = ~sa.exists().where(
        running.c.table_id == merges.c.table_id, running.c.job == merges.c.job, running.c.state == MergeState.RUNNING
    )
    waits = (merges.c.state == MergeState.PENDING) & nothing_runs
    over = (merges.c.lease_expires_at <= now) | (merges.c.leased_at > now + _CLOCK_STEP)
    return waits | (merges.c.state == MergeState.RUNNING) & over


def _oldest_first(now: datetime) -> tuple[sa.ColumnElement[Any], ...]:
    """What was begun before what waits; a request of the future is one from before the clock was set back."""
    begun = sa.case((merges.c.state == MergeState.RUNNING, 0), else_=1)
    return begun, sa.case((merges.c.requested_at > now, 0), else_=1), merges.c.requested_at, merges.c.id


def _lease(owner: str, now: datetime, seconds: float) -> dict[str, Any]:
    return {"lease_owner": owner, "leased_at": now, "lease_expires_at": now + timedelta(seconds=seconds)}


def _lease_lost(merge_id: str, owner: str) -> Conflict:
    return Conflict(
        f"merge {merge_id!r} is not leased to {owner!r} (any more); drop its work, another worker does it again",
        resource_type="MERGE",
        resource_name=merge_id,
    )


@dataclass(frozen=True)
class Leases:
    """What the repository does for a merge worker."""

    transaction: Transaction
    tables: Tables
    batches: Batches
    snapshots: Snapshots
    tasks: Tasks

    def may_claim(self, job: TaskKind) -> bool:
        """Whether there is something to claim; a look that takes no lock."""
        found = sa.select(merges.c.id).where(_claimable(self.transaction.now()), merges.c.job == job).limit(1)
        return self.transaction.execute(found).first() is not None

    def claim(self, owner: str, lease_seconds: float, job: TaskKind = TaskKind.MERGE) -> ClaimedMerge | None:
        """The oldest merge that nobody runs, now leased to ``owner`` with every staged batch of its table; or None.

        A merge whose owner died comes again, before newer ones, with the batches that came since. A compaction is
        claimed the same way, without batches.
        """
        now = self.transaction.now()
        candidates = (
            sa.select(merges.c.id, merges.c.table_id)
            .where(_claimable(now), merges.c.job == job)
            .order_by(*_oldest_first(now))
            .limit(_CANDIDATES)
        )
        for candidate in self.transaction.execute(candidates).all():
            claimed = self._try_claim(candidate.id, candidate.table_id, owner, lease_seconds)
            if claimed is not None:
                return claimed
        return None

    def renew(
        self,
        merge_id: str,
        owner: str,
        lease_seconds: float,
        progress: float = 0.0,
        progress_detail: Mapping[str, int] | None = None,
    ) -> bool:
        """Keeps the lease and notes the progress; true when somebody asked to cancel.

        Raises ``Conflict`` when the lease is lost: another worker took over, the merge is over, or the table is gone.
        """
        renewed = (
            merges.update()
            .where(merges.c.id == merge_id, merges.c.lease_owner == owner, merges.c.state == MergeState.RUNNING)
            .values(
                **_lease(owner, self.transaction.now(), lease_seconds),
                progress=progress,
                progress_detail=dict(progress_detail or {}),
            )
            .returning(merges.c.cancel_requested)
        )
        cancel_requested: bool | None = self.transaction.execute(renewed).scalar_one_or_none()
        if cancel_requested is None:
            raise _lease_lost(merge_id, owner)
        return cancel_requested

    def hand_back(self, merge_id: str, owner: str) -> None:
        """Ends the lease and forgets its owner: whoever claims the merge next begins it anew.

        Raises ``Conflict`` when the lease is lost.
        """
        self._hold(merge_id, owner)
        over = {"lease_owner": None, "leased_at": self.transaction.now(), "lease_expires_at": self.transaction.now()}
        self.transaction.execute(merges.update().where(merges.c.id == merge_id).values(over))

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
        """The snapshot after ``base_snapshot_id`` that names ``new_runs`` (all of them, oldest first).

        The claimed batches are in it and the merge has succeeded, all in the caller's transaction. Raises ``Conflict``
        when another commit came first, the lease is lost or the table is gone.
        """
        table_id = self._hold(merge_id, owner).table_id
        snapshot = self.snapshots.commit(
            table_id, base_snapshot_id, new_runs, SnapshotKind.MERGE, merge_id=merge_id, changelog=changelog
        )
        self._mark_merged(merge_id, snapshot.id)
        self._forget_failures(table_id)
        self._end(
            merge_id,
            MergeState.SUCCEEDED,
            progress=1.0,
            progress_detail=dict(detail or {}),
            snapshot_id=snapshot.id,
            rows=rows,
            records=records,
        )
        return snapshot

    def commit_compaction(
        self,
        merge_id: str,
        owner: str,
        new_runs: Sequence[Run],
        *,
        base_snapshot_id: int | None,
        changelog: Sequence[ChangelogFile] = (),
    ) -> Snapshot:
        """The snapshot after ``base_snapshot_id`` that names ``new_runs``; the compaction goes on under its lease.

        Raises ``Conflict`` when another commit came first, the lease is lost or the table is gone.
        """
        table_id = self._hold(merge_id, owner).table_id
        return self.snapshots.commit(
            table_id, base_snapshot_id, new_runs, SnapshotKind.COMPACTION, merge_id=merge_id, changelog=changelog
        )

    def finish_compaction(
        self,
        merge_id: str,
        owner: str,
        *,
        snapshot_id: int | None,
        rows: int,
        detail: Mapping[str, int] | None = None,
    ) -> Merge:
        """The compaction, succeeded; ``snapshot_id`` is the last it committed, ``rows`` what it wrote.

        Raises ``Conflict`` when the lease is lost.
        """
        self._hold(merge_id, owner)
        done = {"progress": 1.0, "progress_detail": dict(detail or {}), "snapshot_id": snapshot_id, "rows": rows}
        return self._end(merge_id, MergeState.SUCCEEDED, **done)

    def finish_merge_without_changes(self, merge_id: str, owner: str) -> Merge:
        """The merge, succeeded with the table's current snapshot, because its batches (if any) hold no record.

        Raises ``Conflict`` when the lease is lost, ``ValueError`` when there are records that would be forgotten.
        """
        table_id = self._hold(merge_id, owner).table_id
        claimed = self.batches.staged_where(batches.c.merge_id == merge_id)
        if any(batch.records for batch in claimed):
            raise ValueError(f"merge {merge_id!r} has batches with records: it must commit them or fail")
        current = self.tables.existing(table_id).snapshot_id
        self._mark_merged(merge_id, current)
        self._forget_failures(table_id)
        return self._end(merge_id, MergeState.SUCCEEDED, progress=1.0, progress_detail={}, snapshot_id=current)

    def fail(self, merge_id: str, owner: str, error: str, cancelled: bool = False) -> Merge:
        """The merge, failed (or cancelled) with ``error``; its batches stay staged and the next merge takes them.

        Raises ``Conflict`` when the lease is lost.
        """
        held = self._hold(merge_id, owner)
        ended = self._give_up(merge_id, MergeState.CANCELLED if cancelled else MergeState.FAILED, error)
        if held.job is TaskKind.MERGE and not cancelled:
            self._count_failure(ended)
        return ended

    def _try_claim(self, merge_id: str, table_id: str, owner: str, lease_seconds: float) -> ClaimedMerge | None:
        """The claim, or None when another worker was faster.

        The savepoint lets go of the table's lock then: a worker that waited for a second table while it holds the first
        could deadlock with one that goes the other way.
        """
        with self.transaction.connection.begin_nested() as savepoint:
            row = self._lock_claimable(merge_id, table_id)
            if row is None:
                savepoint.rollback()
                return None
            if row.cancel_requested:  # its worker died before it could obey
                self._give_up(merge_id, MergeState.CANCELLED, "cancelled on request")
                return None
            return self._claim(merge_id, table_id, owner, lease_seconds)

    def _lock_claimable(self, merge_id: str, table_id: str) -> AnyRow | None:
        """The merge's row if it can still be claimed.

        A merge that someone else holds (its late worker renews it, its requester cancels it) is left to them.
        """
        try:
            self.tables.lock(table_id)
        except NotFound:
            return None
        query = sa.select(merges).where(merges.c.id == merge_id, _claimable(self.transaction.now()))
        return self.transaction.execute(query.with_for_update(skip_locked=True)).first()

    def _claim(self, merge_id: str, table_id: str, owner: str, lease_seconds: float) -> ClaimedMerge:
        taken = self._take_batches(merge_id, table_id)
        now = self.transaction.now()
        start = (
            merges.update()
            .where(merges.c.id == merge_id)
            .values(
                state=MergeState.RUNNING,
                started_at=now,
                **_lease(owner, now, lease_seconds),
                progress=0.0,
                progress_detail={},
                batches=taken,
            )
        )
        self.transaction.execute(start)
        return ClaimedMerge(
            merge=self.tasks.get(table_id, merge_id),
            table=self.tables.existing(table_id),
            batches=tuple(self.batches.staged_where(batches.c.merge_id == merge_id)),
            base=self.snapshots.current(table_id),
            lease_owner=owner,
        )

    def _take_batches(self, merge_id: str, table_id: str) -> int:
        """Claims every staged batch for a merge; how many. A compaction takes none."""
        if self.tasks.get(table_id, merge_id).job is not TaskKind.MERGE:
            return 0
        take = batches.update().where(batches.c.table_id == table_id, batches.c.state == BatchState.STAGED)
        return self.transaction.execute(take.values(merge_id=merge_id)).rowcount

    def _hold(self, merge_id: str, owner: str) -> AnyRow:
        """The merge's row, locked after its table. Raises ``Conflict`` unless it runs under ``owner``'s lease.

        An expired lease that nobody took is still ``owner``'s.
        """
        table_id = self.transaction.execute(sa.select(merges.c.table_id).where(merges.c.id == merge_id)).scalar()
        if table_id is None:
            raise _lease_lost(merge_id, owner)
        try:
            self.tables.lock(table_id)
            row = self.tasks.row(table_id, merge_id, lock=True)
        except NotFound as error:
            raise _lease_lost(merge_id, owner) from error
        if row.state is not MergeState.RUNNING or row.lease_owner != owner:
            raise _lease_lost(merge_id, owner)
        return row

    def _count_failure(self, merge: Merge) -> None:
        change = tables.update().where(tables.c.id == merge.table_id)
        failed = tables.c.failed_merges + 1
        self.transaction.execute(change.values(failed_merges=failed, merge_failed_at=merge.finished_at))

    def _forget_failures(self, table_id: str) -> None:
        failed = (tables.c.id == table_id) & (tables.c.failed_merges > 0)
        self.transaction.execute(tables.update().where(failed).values(failed_merges=0, merge_failed_at=None))

    def _mark_merged(self, merge_id: str, snapshot_id: int | None) -> None:
        claimed = batches.update().where(batches.c.merge_id == merge_id, batches.c.state == BatchState.STAGED)
        self.transaction.execute(claimed.values(state=BatchState.MERGED, snapshot_id=snapshot_id))

    def _give_up(self, merge_id: str, state: MergeState, error: str) -> Merge:
        """Ends a merge that changed nothing and sets its batches free."""
        claimed = batches.update().where(batches.c.merge_id == merge_id, batches.c.state == BatchState.STAGED)
        self.transaction.execute(claimed.values(merge_id=None))
        return self._end(merge_id, state, error=error)

    def _end(self, merge_id: str, state: MergeState, **values: Any) -> Merge:
        end = (
            merges.update()
            .where(merges.c.id == merge_id)
            .values(state=state, finished_at=self.transaction.now(), lease_expires_at=None, **values)
            .returning(merges)
        )
        return merge_of(self.transaction.execute(end).one())
