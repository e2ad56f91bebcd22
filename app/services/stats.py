"""What a table holds, and what merging and serving it cost: amplifications as ratios of bytes and of runs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from app.catalog.history import HistoryTotals
from app.catalog.repository import Repository
from app.catalog.stats import RetainedTotals, StagedTotals
from app.core.plan.merge_plan import compile_plan
from app.core.table.history import Run, Snapshot, Table, Task, TaskKind, Written
from app.storage.images import ImageProgress, Images

__all__ = ["HistoryTotals", "RetainedTotals", "StagedTotals", "TableStats", "Written", "image_progress", "table_stats"]


@dataclass(frozen=True)
class TableStats:
    """The counts of one table at one moment; ratios are derived, None where there is nothing to divide by."""

    snapshot: Snapshot | None
    staged: StagedTotals
    set_aside: int
    retained: RetainedTotals
    history: HistoryTotals
    written: Written
    merges: int
    compactions: int
    last_merge: Task | None
    last_compaction: Task | None

    @property
    def partitions(self) -> list[list[Run]]:
        """The current snapshot's runs, oldest first, per partition; a table without partitions is one."""
        found: dict[str | None, list[Run]] = defaultdict(list)
        for run in self.snapshot.runs if self.snapshot else ():
            found[run.partition].append(run)
        return list(found.values())

    @property
    def most_runs(self) -> int:
        """Runs of the partition that has most of them: what one lookup may read (the read amplification)."""
        return max((len(runs) for runs in self.partitions), default=0)

    @property
    def write_amplification(self) -> float | None:
        """Bytes that merges and compactions wrote, per byte that merges wrote."""
        merged = self.written.merged
        return (merged + self.written.compacted) / merged if merged else None

    @property
    def space_amplification(self) -> float | None:
        """Bytes of the current snapshot per byte of its oldest runs, which are about what a compacted table takes."""
        compacted = sum(runs[0].size_bytes for runs in self.partitions)
        return self.snapshot.size_bytes / compacted if self.snapshot and compacted else None


def table_stats(repository: Repository, table: Table) -> TableStats:
    """The table's counts; ``table`` was read in the same transaction."""
    merges, last_merge = repository.stats.succeeded(table.id, TaskKind.MERGE)
    compactions, last_compaction = repository.stats.succeeded(table.id, TaskKind.COMPACTION)
    return TableStats(
        snapshot=repository.snapshots.of(table),
        staged=repository.stats.staged(table.id),
        set_aside=repository.set_aside.count(table.id),
        retained=repository.stats.retained(table.id),
        history=repository.history.totals(table.id),
        written=repository.tables.written(table.id),
        merges=merges,
        compactions=compactions,
        last_merge=last_merge,
        last_compaction=last_compaction,
    )


def image_progress(images: Images, table: Table, snapshot: Snapshot | None) -> ImageProgress:
    """How far the images are that answer lookups in the table's current snapshot."""
    return images.progress(table.id, snapshot.runs if snapshot else (), compile_plan(table.schema))
