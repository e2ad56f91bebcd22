"""``T/stats``: what a table holds, and what merging and serving it cost."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field

from app.api.deps import Reading
from app.api.paths import TABLE_PATH, ReadTable
from app.api.payloads import Payload, epoch_millis
from app.api.problems import PROBLEM_RESPONSES
from app.api.snapshots import LIVE_ROWS, STORED_ROWS
from app.core.table.history import Merge
from app.services.stats import TableStats, table_stats

router = APIRouter(prefix=TABLE_PATH, tags=["stats"], responses=PROBLEM_RESPONSES)


class StagedBody(Payload):
    """The staging area: batches that no merge has folded yet."""

    batches: int
    records: int
    size_bytes: int
    oldest_accepted_at: int | None


class WrittenBody(Payload):
    """Bytes that commits have written since the table was created."""

    merged_bytes: int
    compacted_bytes: int
    changelog_bytes: int


class LastJob(Payload):
    """The last merge or compaction that succeeded; times are epoch milliseconds."""

    id: str
    finished_at: int
    duration_millis: int
    rows: int

    @classmethod
    def of(cls, merge: Merge | None) -> LastJob | None:
        """The job as the API shows it."""
        if merge is None or merge.finished_at is None:
            return None
        finished, began = epoch_millis(merge.finished_at), epoch_millis(merge.started_at or merge.finished_at)
        return cls(id=merge.id, finished_at=finished, duration_millis=finished - began, rows=merge.rows)


class StatsBody(Payload):
    """Counts of one moment. Ratios are null where there is nothing to divide by."""

    snapshot_id: int | None
    rows: int | None = Field(description=LIVE_ROWS)
    stored_rows: int = Field(description=STORED_ROWS)
    files: int
    size_bytes: int = Field(description="bytes of the current snapshot's runs")
    runs: int
    partitions: int = Field(description="partitions that have rows; 1 in a table without partition keys")
    most_runs: int = Field(description="runs of the partition that has most of them")
    staged: StagedBody
    written: WrittenBody
    write_amplification: float | None = Field(description="(mergedBytes + compactedBytes) / mergedBytes")
    read_amplification: int = Field(description="runs that one key's lookup may read: mostRuns")
    space_amplification: float | None = Field(
        description="sizeBytes / bytes of the oldest run of each partition, an estimate of the compacted table: right "
        "after a full compaction it is 1; too high while the oldest run is small beside what came later"
    )
    retained_bytes: int = Field(description="bytes of all runs that any snapshot or tag keeps, each counted once")
    retained_files: int
    snapshots: int
    tags: int
    merges: int = Field(description="merges that succeeded")
    compactions: int = Field(description="compactions that succeeded")
    last_merge: LastJob | None
    last_compaction: LastJob | None

    @classmethod
    def of(cls, stats: TableStats) -> StatsBody:
        """The counts as the API shows them."""
        now, staged, written = stats.snapshot, stats.staged, stats.written
        oldest = staged.oldest_accepted_at
        return cls(
            snapshot_id=now.id if now else None,
            rows=now.rows if now else 0,
            stored_rows=now.stored_rows if now else 0,
            files=now.files if now else 0,
            size_bytes=now.size_bytes if now else 0,
            runs=len(now.runs) if now else 0,
            partitions=len(stats.partitions),
            most_runs=stats.most_runs,
            staged=StagedBody(
                batches=staged.batches,
                records=staged.records,
                size_bytes=staged.size_bytes,
                oldest_accepted_at=None if oldest is None else epoch_millis(oldest),
            ),
            written=WrittenBody(
                merged_bytes=written.merged, compacted_bytes=written.compacted, changelog_bytes=written.changelog
            ),
            write_amplification=stats.write_amplification,
            read_amplification=stats.most_runs,
            space_amplification=stats.space_amplification,
            retained_bytes=stats.retained.size_bytes,
            retained_files=stats.retained.files,
            snapshots=stats.retained.snapshots,
            tags=stats.retained.tags,
            merges=stats.merges,
            compactions=stats.compactions,
            last_merge=LastJob.of(stats.last_merge),
            last_compaction=LastJob.of(stats.last_compaction),
        )


@router.get("/stats", operation_id="getTableStats")
def get_stats(table: ReadTable, repository: Reading) -> StatsBody:
    """What the table holds, keeps and waits for, and its write, read and space amplification."""
    return StatsBody.of(table_stats(repository, table))
