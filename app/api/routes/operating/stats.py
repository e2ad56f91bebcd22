"""``T/stats``: the size of a table, and the costs of merging and serving it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated

from pydantic import Field

from app.api.middleware.routing import Router
from app.api.routes.batches.batches import IgnoredColumn, ignored_columns
from app.api.routes.snapshots.snapshots import LIVE_ROWS, STORED_ROWS
from app.api.shared.answers import Answer, EpochMillis, From, epoch_millis
from app.api.shared.deps import ImagesDep, PartsDep
from app.api.shared.paths import TABLE_PATH
from app.api.shared.problems import PROBLEM_RESPONSES
from app.api.shared.transactions import Reading, TableDep
from app.core.table.history import CatalogTask
from app.core.table.upkeep.overdue import OverdueReason
from app.services.operating.stats import TableStats, image_progress, table_stats

router = Router(prefix=TABLE_PATH, tags=["stats"], responses=PROBLEM_RESPONSES)


class Staged(Answer):
    """The staging area: batches that no merge has folded yet."""

    batches: int
    records: int
    size_bytes: int
    oldest_accepted_at: EpochMillis | None


class OverdueMerge(Answer):
    """The table misses its ``merge.max-staleness``: its oldest staged batch waits longer, by more than a second."""

    by_millis: Annotated[int, From(lambda overdue: overdue.by // timedelta(milliseconds=1))] = Field(
        description="how much longer than merge.max-staleness it has waited"
    )
    reason: OverdueReason
    detail: Annotated[str, From("explained")]


class Written(Answer):
    """Bytes that commits have written since the table was created."""

    merged_bytes: Annotated[int, From("merged")]
    compacted_bytes: Annotated[int, From("compacted")]
    changelog_bytes: Annotated[int, From("changelog")]


def _duration_millis(task: CatalogTask) -> int:
    """Return the duration; 0 for a task that ended before it began. Only ended tasks have one."""
    ended = task.finished_at or task.requested_at
    return epoch_millis(ended) - epoch_millis(task.started_at or ended)


class LastJob(Answer):
    """The last merge or compaction that succeeded; times are epoch milliseconds."""

    id: str
    finished_at: EpochMillis
    duration_millis: Annotated[int, From(_duration_millis)]
    rows: int


class MergesWait(Answer):
    """Why the table's merges wait: it has as many runs as its ``num-sorted-run.stop-trigger``, or more."""

    compaction_id: str = Field(description="the compaction that they wait for: GET T/merges/{compactionId}")
    runs: int
    stop_trigger: Annotated[int, From("trigger")]
    since: EpochMillis = Field(description="when that compaction was requested")
    until: EpochMillis = Field(description="when merges continue even if it has not ended")


class CompactionFailed(Answer):
    """The compactions that have failed since the last that succeeded; they are retried, later each time."""

    in_a_row: int
    last_at: EpochMillis
    error: str = Field(description="why the last of them failed")


def _now(name: str, before: int | None) -> Callable[[TableStats], object]:
    """Return an attribute of the current snapshot, or its value before the first one."""
    return lambda stats: getattr(stats.snapshot, name) if stats.snapshot else before


class ImagesMade(Answer):
    """The images of this machine for lookups in the current snapshot; files without an image are read from Parquet."""

    files: int = Field(description="data files of the snapshot")
    made: int = Field(description="those of them whose image is made")
    size_bytes: int


class History(Answer):
    """The records of merged batches that are kept to explain rows, and their size."""

    since_snapshot: Annotated[int, From("since")] = Field(
        description="all that was merged after this snapshot is kept, and this snapshot with it; 0: all there was"
    )
    batches: int
    records: int
    files: int = Field(description="history files; what was merged a moment ago is in staging files")
    size_bytes: int = Field(description="bytes of those files and of staging files that are history")
    bases: int = Field(description="snapshots that are kept because records are explained from them")
    base_bytes: int = Field(description="bytes of runs that only they name")


class Disk(Answer):
    """The bytes of a table on disk, by purpose; the log of published versions is not counted."""

    live_bytes: int = Field(description="data files of the current snapshot")
    older_bytes: int = Field(description="data files that only older snapshots and tags name: snapshot.time-retained")
    staged_bytes: int = Field(description="batches that wait for a merge")
    history_bytes: int = Field(
        description="records that are kept to explain rows: history.time-retained, history.max-size"
    )
    changelog_bytes: int = Field(description="changelogs of the snapshots that are kept")
    image_bytes: int = Field(description="images on this machine: KEYFOLD_IMAGE_BYTES")

    @staticmethod
    def by_use(stats: TableStats, images: int) -> Disk:
        """Return the sizes; ``images`` are bytes."""
        live, retained = stats.snapshot.size_bytes if stats.snapshot else 0, stats.retained
        return Disk(
            live_bytes=live,
            older_bytes=retained.size_bytes - live,
            staged_bytes=stats.staged.size_bytes,
            history_bytes=stats.history.size_bytes,
            changelog_bytes=retained.changelog_bytes,
            image_bytes=images,
        )


class Stats(Answer):
    """Counts of one moment. Ratios are null if there is nothing to divide by."""

    snapshot_id: Annotated[int | None, From(_now("id", None))]
    rows: Annotated[int | None, From(_now("rows", 0))] = Field(description=LIVE_ROWS)
    stored_rows: Annotated[int, From(_now("stored_rows", 0))] = Field(description=STORED_ROWS)
    files: Annotated[int, From(_now("files", 0))]
    size_bytes: Annotated[int, From(_now("size_bytes", 0))] = Field(description="bytes of the current snapshot's runs")
    runs: Annotated[int, From(lambda stats: len(stats.snapshot.runs) if stats.snapshot else 0)]
    partitions: Annotated[int, From(lambda stats: len(stats.partitions))] = Field(
        description="partitions that have rows; 1 in a table without partition keys"
    )
    most_runs: int = Field(description="runs of the partition that has most of them")
    staged: Staged
    overdue: OverdueMerge | None = Field(description="null while the table is merged in time")
    set_aside: int = Field(description="batches that are in no merge: damaged or poisoned")
    set_aside_events: int = Field(description="change events with faults that the table keeps")
    ignored_columns: Annotated[list[IgnoredColumn], From(lambda stats: ignored_columns(stats.ignored_columns))] = Field(
        description="columns that the table does not have and that the last hundred batches with such named"
    )
    written: Written
    write_amplification: float | None = Field(description="(mergedBytes + compactedBytes) / mergedBytes")
    read_amplification: Annotated[int, From("most_runs")] = Field(
        description="runs that one key's lookup may read: mostRuns"
    )
    space_amplification: float | None = Field(
        description="sizeBytes / bytes of the oldest run of each partition, an estimate of the compacted table: right "
        "after a full compaction it is 1; too high while the oldest run is small compared to later ones"
    )
    retained_bytes: Annotated[int, From("retained.size_bytes")] = Field(
        description="bytes of all runs that any snapshot or tag keeps, each counted once"
    )
    retained_files: Annotated[int, From("retained.files")]
    snapshots: Annotated[int, From("retained.snapshots")]
    tags: Annotated[int, From("retained.tags")]
    history: History
    merges: int = Field(description="merges that succeeded")
    compactions: int = Field(description="compactions that succeeded")
    last_merge: LastJob | None
    last_compaction: LastJob | None
    merges_wait: MergesWait | None = Field(description="why no merge of the table begins now; null while they do")
    compaction_failure: CompactionFailed | None = Field(description="null where the last compaction succeeded")
    images: ImagesMade
    disk: Disk


@router.get("/stats", operation_id="getTableStats")
def get_stats(table: TableDep, repository: Reading, images: ImagesDep, parts: PartsDep) -> Stats:
    """Return the table's counts of rows, files and waiting batches, its write, read and space amplification, and its
    images.
    """
    stats = table_stats(repository, table, spark_answers=parts.spark_ready())
    made = image_progress(images, table, stats.snapshot)
    return Stats.from_value(stats, images=ImagesMade.from_value(made), disk=Disk.by_use(stats, made.size_bytes))
