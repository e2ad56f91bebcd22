"""The values that describe a table and its history: databases, tables, batches, tasks, runs, snapshots."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from itertools import accumulate

from app.core.table.schema import TableSchema
from app.core.table.total_ranges import TotalRanges


class BatchState(StrEnum):
    """Where an accepted POST stands."""

    STAGED = "staged"  # durable, not yet in a snapshot
    MERGED = "merged"  # folded into the snapshot that its merge committed
    DELETED = "deleted"  # withdrawn by its owner while it was staged
    DAMAGED = "damaged"  # set aside: its file is missing or damaged
    POISONED = "poisoned"  # set aside: no merge can fold its records


SET_ASIDE = (BatchState.DAMAGED, BatchState.POISONED)
"""Staged once, and in no merge until their owner withdraws or retries them."""
UNMERGED = (BatchState.STAGED, *SET_ASIDE)
"""Those whose staging files are needed."""


class TaskState(StrEnum):
    """Where a merge or compaction stands."""

    PENDING = "pending"  # requested; no worker has claimed it
    RUNNING = "running"  # a worker holds its lease
    SUCCEEDED = "succeeded"  # its snapshot is committed (or there was nothing to do)
    FAILED = "failed"  # uncommitted work has no effect: a merge's batches are still staged
    CANCELLED = "cancelled"  # stopped on request; the same


class TaskKind(StrEnum):
    """The kind of a task: at most one of a kind runs for a table."""

    MERGE = "merge"  # folds staged batches into a run
    COMPACTION = "compaction"  # combines runs


class TaskTrigger(StrEnum):
    """Why a merge or compaction was requested."""

    REQUEST = "request"  # POST …/merges, POST …/compact
    STALENESS = "staleness"  # staged batches reached merge.max-staleness
    ROWS = "rows"  # staged records reached merge.max-staged-rows
    RUNS = "runs"  # the runs of the table reached what its compaction options allow
    DELTA = "delta"  # the Delta log lags by delta.publish.interval, or begins
    ICEBERG = "iceberg"  # the same of Iceberg


class SnapshotKind(StrEnum):
    """The operation that made a snapshot."""

    MERGE = "merge"
    COMPACTION = "compaction"
    ROLLBACK = "rollback"
    PARTITION_DROP = "partition-drop"
    FORGETTING = "forgetting"  # the same without keys that are to be forgotten


@dataclass(frozen=True)
class Database:
    """A namespace of tables. Times are UTC. ``created_by`` and ``updated_by`` are names of tokens, empty if none was
    needed.
    """

    id: str
    name: str
    options: Mapping[str, str]
    created_at: datetime
    updated_at: datetime
    created_by: str = ""
    updated_by: str = ""


@dataclass(frozen=True)
class Table:
    """A table as the catalog keeps it; ``snapshot_id`` is its current snapshot, None before the first merge."""

    id: str
    database: str
    name: str
    schema_id: int
    schema: TableSchema
    snapshot_id: int | None
    created_at: datetime
    updated_at: datetime
    created_by: str = ""
    updated_by: str = ""

    @property
    def full_name(self) -> str:
        """``database.table``, for messages."""
        return f"{self.database}.{self.name}"


@dataclass(frozen=True)
class DataFile:
    """One Parquet file of a run: its path below the run's folder, its size and the (inclusive) range of its tokens.

    ``digest`` and ``block_digests`` are of its bytes, as ``damage.NamedFile`` has them.
    """

    name: str
    rows: int
    size_bytes: int
    min_token: int
    max_token: int
    digest: str | None = None
    block_digests: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Run:
    """The files of one merge or compaction in one partition, with disjoint token ranges in ascending order.

    ``schema_id`` is the schema whose column names and types the files have. ``partition`` is the JSON object of the
    partition columns' values, None in a table without ``partitionKeys``. ``full``: a full compaction made the run, so
    it had all rows. ``changed_at`` is when the newest of its records was merged; the commit sets it where it is None.
    ``live_rows`` are those that would be seen if there were no other run; None if it was not counted them.
    """

    id: str
    schema_id: int
    files: tuple[DataFile, ...]
    partition: str | None = None
    full: bool = False
    changed_at: datetime | None = field(default=None, compare=False)  # says when, not what
    live_rows: int | None = None
    totals: TotalRanges | None = field(default=None, compare=False)  # null before migration 0017

    @cached_property
    def last_tokens(self) -> array[int]:
        """The largest token of each file and of those before it, ascending: what finds the files of a token
        (``storage.tokens``) without a look at each.
        """
        return array("q", accumulate((file.max_token for file in self.files), max))

    @cached_property
    def rows(self) -> int:
        """State rows in the run, deleted keys that must be remembered included."""
        return sum(file.rows for file in self.files)

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of all files of the run."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True)
class Snapshot:
    """An ordered list of runs, oldest first: the whole of a table at one commit. Numbers start at 1 and never come
    again.

    ``schema_id`` is the table's schema at the commit.
    """

    id: int
    table_id: str
    runs: tuple[Run, ...]
    merge_id: str | None
    committed_at: datetime
    kind: SnapshotKind = SnapshotKind.MERGE
    schema_id: int = 0

    @property
    def files(self) -> int:
        """Data files of all runs."""
        return sum(len(run.files) for run in self.runs)

    @property
    def stored_rows(self) -> int:
        """State rows of all runs: a key counts once per run that has it."""
        return sum(run.rows for run in self.runs)

    @property
    def rows(self) -> int | None:
        """The rows that a reader sees; None if several runs of a partition may have the same key, or a run's rows
        were not counted.
        """
        counts = [run.live_rows for run in self.runs if run.live_rows is not None]
        partitions = {run.partition for run in self.runs}
        return sum(counts) if len(counts) == len(partitions) == len(self.runs) else None

    @property
    def size_bytes(self) -> int:
        """Bytes of all runs."""
        return sum(run.size_bytes for run in self.runs)


@dataclass(frozen=True)
class Rewrite:
    """A snapshot that is not just the previous one plus some batches: a rollback to ``restored_from`` (None if
    unknown), a drop of ``partitions`` (JSON texts), or a forgetting of keys.
    """

    snapshot_id: int
    kind: SnapshotKind
    committed_at: datetime
    restored_from: int | None = None
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tag:
    """A name that keeps a snapshot, until ``expires_at`` if that is set."""

    name: str
    snapshot_id: int
    created_at: datetime
    expires_at: datetime | None = None


@dataclass(frozen=True)
class ChangelogFile:
    """One Parquet file of the changes that a snapshot brought: its path below the table's changelog folder.

    ``digest`` and ``block_digests`` are of its bytes, as ``damage.NamedFile`` has them.
    """

    name: str
    rows: int
    size_bytes: int
    digest: str | None = None
    block_digests: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class HistoryExtent:
    """The merged records that a table keeps: those of the snapshots after number ``since``.

    Those up to snapshot ``filed`` are in history files, later ones in the staging files of their batches.
    """

    since: int = 0
    filed: int = 0


@dataclass(frozen=True)
class Base:
    """A snapshot that is kept so that later records can be explained from it."""

    snapshot_id: int
    committed_at: datetime


HISTORY_FOLDER, CHANGELOG_FOLDER = "history", "changelog"
"""Where history files and the files of changelogs are, below their table's folder."""


@dataclass(frozen=True)
class HistoryFile:
    """A file of records, all written under ``schema_id``, that came into the snapshots from ``first_snapshot`` to
    ``last_snapshot``: sorted by token, those of one token as they were merged.

    ``digest`` and ``block_digests`` are of its bytes, as ``damage.NamedFile`` has them.
    """

    name: str
    schema_id: int
    first_snapshot: int
    last_snapshot: int
    records: int
    size_bytes: int
    digest: str | None = None
    block_digests: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Written:
    """Bytes that the commits of a table have written since it was created."""

    merged: int = 0
    compacted: int = 0
    changelog: int = 0


@dataclass(frozen=True)
class NewBatch:
    """A staged file that is about to become a batch.

    ``records`` are in the file; ``ignored`` were dropped by ``ignore-delete`` or ``ignore-update-before``. A digest of
    the request is its ``fingerprint``: the Idempotency-Key of another one is refused. ``digest`` is xxh3-128 of the
    file, ``accepted_by`` the name of the token that sent it, empty if none was needed. ``ignored_columns`` counts
    the records that had each column that was left out, None if there was none.
    """

    id: str
    schema_id: int
    file: str
    records: int
    ignored: int
    size_bytes: int
    fingerprint: str
    idempotency_key: str | None = None
    digest: str | None = None
    accepted_by: str = ""
    ignored_columns: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Batch:
    """One accepted POST: a ``NewBatch`` with its ``number``, the place in the table's arrival order, from 1. ``tries``
    counts the merges that it made fail, ``fault`` says why it is set aside.
    """

    id: str
    table_id: str
    number: int
    state: BatchState
    schema_id: int
    file: str
    records: int
    ignored: int
    size_bytes: int
    fingerprint: str
    idempotency_key: str | None
    accepted_at: datetime
    merge_id: str | None
    snapshot_id: int | None
    digest: str | None = None
    tries: int = 0
    fault: str | None = None
    accepted_by: str = ""
    ignored_columns: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Blame:
    """Why the records of a merge, or of ``batch_id`` if known, made it fail. ``state`` is the new state of a batch
    that is found faulty.
    """

    state: BatchState
    fault: str
    batch_id: str | None = None


@dataclass(frozen=True)
class CatalogTask:
    """A merge or compaction (``full``: of all runs, not those that the policy picks), which a worker runs under a
    lease as one or several tasks of the kernel.

    ``progress`` is from 0 to 1 while it runs; ``records`` and ``rows`` are what it folded and wrote; ``error`` says
    why it failed and what to do next.
    """

    id: str
    table_id: str
    state: TaskState
    trigger: TaskTrigger
    requested_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    progress: float = 0.0
    progress_detail: Mapping[str, int] = field(default_factory=dict)
    snapshot_id: int | None = None
    batches: int = 0
    records: int = 0
    rows: int = 0
    error: str | None = None
    cancel_requested: bool = False
    kind: TaskKind = TaskKind.MERGE
    full: bool = False


@dataclass(frozen=True)
class Failures:
    """The number of failed tasks of a table since the last success, at least 1, and the time of the last failure."""

    in_a_row: int
    last_at: datetime


@dataclass(frozen=True)
class Backlog:
    """The totals of a table's staging area; ``failures`` are those of its merges, ``pending``: a merge is pending."""

    table: Table
    batches: int
    records: int
    oldest_accepted_at: datetime | None
    newest_accepted_at: datetime | None
    failures: Failures | None
    pending: bool
