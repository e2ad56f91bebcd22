"""Lineage: which commits are in a snapshot. Without rollbacks all that came before it; a rollback to S leaves those
out that came after S and before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.core.table.history import Rewrite, SnapshotKind


@dataclass(frozen=True)
class Stretch:
    """The snapshots ``first`` to ``until``, each of the one before it; ``begun`` is the rollback that is the first."""

    first: int
    until: int
    begun: Rewrite | None = None


@dataclass(frozen=True)
class Lineage:
    """The snapshots whose commits are in the last of them, oldest first.

    ``complete``: they go back to the first commit; else it is not known what the first of them is made of.
    """

    stretches: Sequence[Stretch]
    drops: Sequence[Rewrite]
    complete: bool = True

    @property
    def first(self) -> int:
        """The number of the oldest snapshot; 1 before the first commit."""
        return self.stretches[0].first if self.stretches else 1

    def holds(self, snapshot_id: int) -> bool:
        """Return whether the commit of this snapshot is in the last one."""
        return any(stretch.first <= snapshot_id <= stretch.until for stretch in self.stretches)

    @property
    def rewrites(self) -> Sequence[Rewrite]:
        """The rollbacks, drops and forgettings on the way, oldest first."""
        begun = [stretch.begun for stretch in self.stretches if stretch.begun is not None]
        return sorted([*begun, *self.drops], key=lambda rewrite: rewrite.snapshot_id)


def lineage(rewrites: Sequence[Rewrite], until: int) -> Lineage:
    """Return the lineage of the snapshot ``until`` (0: before the first commit), given all rollbacks, drops and
    forgettings in order.
    """
    stretches: list[Stretch] = []
    last, complete = until, True
    rollbacks = [rewrite for rewrite in rewrites if rewrite.kind is SnapshotKind.ROLLBACK]
    while last > 0:
        begun = next((rollback for rollback in reversed(rollbacks) if rollback.snapshot_id <= last), None)
        stretches.append(Stretch(begun.snapshot_id if begun else 1, last, begun))
        last = (begun.restored_from or 0) if begun else 0
        complete = complete and (begun is None or begun.restored_from is not None)
    stretches.reverse()
    drops = [rewrite for rewrite in rewrites if rewrite.kind in (SnapshotKind.PARTITION_DROP, SnapshotKind.FORGETTING)]
    known = Lineage(stretches, (), complete)
    return Lineage(stretches, [drop for drop in drops if known.holds(drop.snapshot_id)], complete)


@dataclass(frozen=True)
class Undone:
    """The snapshots whose commits a rollback removed from the table: those ``before`` it that are not in the restored
    one.
    """

    before: Lineage
    restored: Lineage

    def holds(self, snapshot_id: int) -> bool:
        """Return whether the commit of this snapshot is one of them."""
        return self.before.holds(snapshot_id) and not self.restored.holds(snapshot_id)


def undone_by(rewrites: Sequence[Rewrite], rollback: Rewrite) -> Undone:
    """Return the snapshots and batches that ``rollback`` removed from the table."""
    return Undone(lineage(rewrites, rollback.snapshot_id - 1), lineage(rewrites, rollback.restored_from or 0))
