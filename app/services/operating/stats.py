"""The size of a table, and the costs of merging and serving it: amplifications as ratios of bytes and of runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.catalog.batches.history import HistoryTotals
from app.catalog.repository import Repository
from app.catalog.upkeep.stats import RetainedTotals, StagedTotals
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.compaction import Stop
from app.core.table.history import CatalogTask, Run, Snapshot, SnapshotKind, Table, TaskKind, TaskState, Written
from app.core.table.upkeep.overdue import Overdue
from app.services.merging.overdue import overdue_tables
from app.storage.images import ImageProgress, Images

__all__ = ["HistoryTotals", "RetainedTotals", "StagedTotals", "TableStats", "Written", "image_progress", "table_stats"]


@dataclass(frozen=True)
class CompactionFailure:
    """The failures of a table's compactions: how many since the last success, the time of the last one, and its
    reason.
    """

    in_a_row: int
    last_at: datetime
    error: str


@dataclass(frozen=True)
class TableStats:
    """The counts of one table at one moment; ratios are derived, None if there is nothing to divide by."""

    snapshot: Snapshot | None
    staged: StagedTotals
    overdue: Overdue | None
    set_aside: int
    set_aside_events: int
    ignored_columns: Mapping[str, int]
    retained: RetainedTotals
    history: HistoryTotals
    written: Written
    merges: int
    compactions: int
    last_merge: CatalogTask | None
    last_compaction: CatalogTask | None
    merges_wait: Stop | None
    compaction_failure: CompactionFailure | None

    @property
    def partitions(self) -> list[list[Run]]:
        """The current snapshot's runs, oldest first, per partition; a table without partitions has one."""
        return by_partition(self.snapshot)

    @property
    def most_runs(self) -> int:
        """The most runs of one partition: a lookup may read all of them (the read amplification)."""
        return read_amplification(self.snapshot)

    @property
    def write_amplification(self) -> float | None:
        """Bytes that merges and compactions wrote, per byte that merges wrote."""
        return write_amplification(self.written.merged, self.written.compacted)

    @property
    def space_amplification(self) -> float | None:
        """Bytes of the current snapshot per byte of its oldest runs, which are about the size of a compacted table."""
        return space_amplification(self.snapshot)


def by_partition(snapshot: Snapshot | None) -> list[list[Run]]:
    """Return the runs of a snapshot, oldest first, per partition; a table without partitions has one."""
    groups: dict[str | None, list[Run]] = defaultdict(list)
    for run in snapshot.runs if snapshot else ():
        groups[run.partition].append(run)
    return list(groups.values())


def read_amplification(snapshot: Snapshot | None) -> int:
    """Return the most runs of one partition: a lookup may read all of them."""
    return max((len(runs) for runs in by_partition(snapshot)), default=0)


def write_amplification(merged: int, compacted: int) -> float | None:
    """Return the bytes that merges and compactions wrote, per byte that merges wrote."""
    return (merged + compacted) / merged if merged else None


def space_amplification(snapshot: Snapshot | None) -> float | None:
    """Return the bytes of a snapshot per byte of its oldest runs, which are about the size of a compacted table."""
    compacted = sum(runs[0].size_bytes for runs in by_partition(snapshot))
    return snapshot.size_bytes / compacted if snapshot and compacted else None


@dataclass(frozen=True)
class Amplified:
    """The amplifications of a snapshot: ``read`` and ``space`` are its own, ``write`` is the average since the first
    snapshot of the list.
    """

    snapshot_id: int
    write: float | None
    read: int
    space: float | None


def amplified(snapshots: Sequence[Snapshot]) -> list[Amplified]:
    """Return the amplifications of neighbouring snapshots, the oldest first."""
    written = dict.fromkeys(SnapshotKind, 0)
    known: set[str] = set()
    steps = []
    for number, snapshot in enumerate(snapshots):
        new = [run for run in snapshot.runs if run.id not in known]
        if number == 0:  # older runs were written by snapshots before the list
            new = [run for run in new if run.changed_at == snapshot.committed_at]
        written[snapshot.kind] += sum(run.size_bytes for run in new)
        known = {run.id for run in snapshot.runs}
        write = write_amplification(written[SnapshotKind.MERGE], written[SnapshotKind.COMPACTION])
        steps.append(Amplified(snapshot.id, write, read_amplification(snapshot), space_amplification(snapshot)))
    return steps


def table_stats(repository: Repository, table: Table, *, spark_answers: bool = True) -> TableStats:
    """Return the table's counts; ``table`` was read in the same transaction."""
    late = overdue_tables(repository, table.id, spark_answers=spark_answers)
    merges, last_merge = repository.stats.succeeded(table.id, TaskKind.MERGE)
    compactions, last_compaction = repository.stats.succeeded(table.id, TaskKind.COMPACTION)
    return TableStats(
        snapshot=repository.snapshots.current_of(table),
        staged=repository.stats.staged(table.id),
        overdue=late[0] if late else None,
        set_aside=repository.set_aside.count(table.id),
        set_aside_events=repository.set_aside_events.count(table.id),
        ignored_columns=repository.stats.ignored_columns(table.id),
        retained=repository.stats.retained(table.id),
        history=repository.history.totals(table.id),
        written=repository.tables.written(table.id),
        merges=merges,
        compactions=compactions,
        last_merge=last_merge,
        last_compaction=last_compaction,
        merges_wait=repository.stops.find(table.id),
        compaction_failure=_compaction_failure(repository, table),
    )


def _compaction_failure(repository: Repository, table: Table) -> CompactionFailure | None:
    failures = repository.tasks.failed_compactions([table.id]).get(table.id)
    last = repository.tasks.page(table.id, limit=1, state=TaskState.FAILED, kind=TaskKind.COMPACTION)
    return CompactionFailure(failures.in_a_row, failures.last_at, last[0].error or "") if failures and last else None


def image_progress(images: Images, table: Table, snapshot: Snapshot | None) -> ImageProgress:
    """Return how many data files of the current snapshot have an image, how many there are, and the images' bytes."""
    return images.progress(table.id, snapshot.runs if snapshot else (), compile_plan(table.schema))
