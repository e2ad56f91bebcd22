"""All metrics: those that processes count while they work (``Counted``), and those that a scrape reads (``Measured``).

``docs/monitoring.md`` lists them all, ``docs/grafana-dashboard.json`` and ``docs/alerts.yml`` name some; tests compare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final

from app.core.table.published import Format
from app.core.table.upkeep.overdue import OverdueReason

# The table label that sums up all tables beyond the bound. No table has this name: parentheses are not allowed.
OTHERS: Final = "(others)"
# The operation label of requests that reached no route: refused by the gate, too large, or of an unknown path.
NO_OPERATION: Final = "none"
# The status label of requests whose client disconnected before the answer was complete.
GONE: Final = "gone"
STATUSES: Final = ("1xx", "2xx", "3xx", "4xx", "5xx", GONE)
# The name of that label.
OPERATION: Final = "operation"
# Its values. Empty here: ``Metrics`` fills in the operation ids of the routes.
OPERATIONS: Final[Sequence[str]] = ()


class Kind(StrEnum):
    """Prometheus' kinds of metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Access(StrEnum):
    """The purpose of a transaction of the catalog."""

    READ = "read"
    WRITE = "write"


class TaskOutcome(StrEnum):
    """How a merge or compaction of this service ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    HANDED_BACK = "handed_back"  # another worker runs it now, or will


class Bound(StrEnum):
    """The bound for which a batch is refused."""

    TABLE_BYTES = "table_bytes"  # the table has too many staged bytes
    TABLE_RECORDS = "table_records"  # the table has too many staged records
    TABLE_AGE = "table_age"  # the table's oldest staged batch waits too long
    BYTES = "bytes"  # all tables together have too many staged bytes
    RECORDS = "records"  # all tables together have too many staged records
    ROOM = "room"  # the disk of the warehouse or of the data folder is nearly full
    WAREHOUSE = "warehouse"  # the warehouse is missing


class SparkState(StrEnum):
    """The state of Spark, as this service knows it."""

    ELSEWHERE = "elsewhere"  # this service has no workers: other services merge
    STARTING = "starting"  # Spark has not answered yet
    READY = "ready"  # Spark answers and can run merges
    LOST = "lost"  # Spark answered before, but does not now
    REFUSED = "refused"  # Spark answers, but cannot run merges


class Upkeep(StrEnum):
    """The kinds of background work of a worker, for one table after the other."""

    PARTITIONS = "partitions"  # drop expired partitions
    SNAPSHOTS = "snapshots"  # expire snapshots that nothing keeps
    HISTORY = "history"  # move merged batches into history files, and forget old ones
    SWEEP = "sweep"  # garbage-collect files that the catalog does not name
    DELTA = "delta"  # write Delta logs, and cut old versions from them
    ICEBERG = "iceberg"  # write Iceberg metadata, and cut old versions from it
    SCRUB = "scrub"  # read files to find damage
    IMAGES = "images"  # request the images that lookups need
    FORGETTING = "forgetting"  # remove forgotten keys from files
    COMPACTIONS = "compactions"  # request failed compactions again


SPARK_SERVES: Final = (SparkState.READY, SparkState.ELSEWHERE)
"""The states in which no merge waits for Spark."""


@dataclass(frozen=True)
class Entry:
    """One metric. ``labels`` has by label its possible values; empty if they are only known while the service runs.
    ``bounds`` are the upper bounds of a histogram's buckets, in its unit.
    """

    name: str
    kind: Kind
    meaning: str
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    bounds: tuple[float, ...] = ()

    @property
    def exposed_name(self) -> str:
        """The metric's name in Prometheus; the series of a histogram add ``_bucket``, ``_sum`` and ``_count``."""
        return f"{self.name}_total" if self.kind is Kind.COUNTER else self.name


_REQUEST_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_WAIT_SECONDS = (0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0)
_TASK_SECONDS = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
_TASKS = {"kind": ("merge", "compaction"), "outcome": tuple(TaskOutcome)}


class Counted(Enum):
    """Metrics that processes count while they work, in cells of ``Metrics``."""

    REQUESTS = Entry(
        "keyfold_requests",
        Kind.COUNTER,
        "Requests by operation of the OpenAPI document and class of status; gone: the client hung up.",
        {OPERATION: OPERATIONS, "status": STATUSES},
    )
    REQUEST_SECONDS = Entry(
        "keyfold_request_seconds",
        Kind.HISTOGRAM,
        "Time from the head of a request to the end of its answer.",
        {OPERATION: OPERATIONS},
        _REQUEST_SECONDS,
    )
    LOOKED_UP = Entry(
        "keyfold_looked_up_keys",
        Kind.COUNTER,
        "Keys looked up one by one or many at once: answered by images alone (hit), or with state rows (miss).",
        {"asked": ("one", "many"), "images": ("hit", "miss")},
    )
    ACCEPTED_BATCHES = Entry("keyfold_accepted_batches", Kind.COUNTER, "Batches that were accepted.")
    ACCEPTED_RECORDS = Entry("keyfold_accepted_records", Kind.COUNTER, "Records of accepted batches.")
    ACCEPTED_BYTES = Entry("keyfold_accepted_bytes", Kind.COUNTER, "Bytes of the staging files of accepted batches.")
    REFUSED_BATCHES = Entry(
        "keyfold_refused_batches",
        Kind.COUNTER,
        "Batches refused before they were read, by the bound that was reached; each retry within a request counts.",
        {"bound": tuple(Bound)},
    )
    TASK_SECONDS = Entry(
        "keyfold_task_seconds",
        Kind.HISTOGRAM,
        "Time from the claim to the end of merges and compactions.",
        _TASKS,
        _TASK_SECONDS,
    )
    TASK_RECORDS = Entry(
        "keyfold_task_records", Kind.COUNTER, "Staged records that merges claimed, by how they ended.", _TASKS
    )
    TASK_ROWS = Entry("keyfold_task_rows", Kind.COUNTER, "State rows that merges and compactions committed.", _TASKS)
    CATALOG_WAIT = Entry(
        "keyfold_catalog_wait_seconds",
        Kind.HISTOGRAM,
        "Time until a transaction of the catalog had its connection, with SQLite also the write lock.",
        {"access": tuple(Access)},
        _WAIT_SECONDS,
    )
    WAITING_WRITERS = Entry("keyfold_waiting_writers", Kind.GAUGE, "Writers that wait for the catalog now.")
    REFUSED_WRITERS = Entry(
        "keyfold_refused_writers",
        Kind.COUNTER,
        "Requests answered 503, because other writers already waited for a catalog that did not answer.",
    )
    IMAGES_REQUESTED = Entry(
        "keyfold_images_asked",
        Kind.COUNTER,
        "Images that lookups requested: made, refused (no room, a table just dropped), or withdrawn, because a "
        "compaction had replaced their run.",
        {"outcome": ("made", "refused", "withdrawn")},
    )
    UPKEEP_FAULTS = Entry(
        "keyfold_upkeep_faults",
        Kind.COUNTER,
        "Failures of upkeep for one table; the other tables continue. The log names the table and the reason.",
        {"work": tuple(Upkeep)},
    )
    CATALOG_FAULTS = Entry(
        "keyfold_catalog_faults",
        Kind.GAUGE,
        "Faults of the catalog that the last scrub found: rows that do not match their checksums. Restore the catalog.",
    )
    SPARK = Entry(
        "keyfold_spark_state",
        Kind.GAUGE,
        "1 of the state that the Spark of this service is in.",
        {"state": tuple(SparkState)},
    )


_OF_TABLE: Mapping[str, Sequence[str]] = {"database": (), "table": ()}
_OF_PROCESS: Mapping[str, Sequence[str]] = {"process": ()}


class Measured(Enum):
    """Metrics that each scrape measures."""

    BUILD = Entry(
        "keyfold_build_info", Kind.GAUGE, "1; its labels say what runs.", {"version": (), "python": (), "catalog": ()}
    )
    STAGED_BATCHES = Entry("keyfold_staged_batches", Kind.GAUGE, "Batches that no merge has folded yet.", _OF_TABLE)
    STAGED_RECORDS = Entry("keyfold_staged_records", Kind.GAUGE, "Records of staged batches.", _OF_TABLE)
    STAGED_BYTES = Entry("keyfold_staged_bytes", Kind.GAUGE, "Bytes of the staging files of staged batches.", _OF_TABLE)
    STAGED_AGE = Entry(
        "keyfold_staged_oldest_seconds", Kind.GAUGE, "Time since the oldest staged batch was accepted.", _OF_TABLE
    )
    FAILING_TABLES = Entry(
        "keyfold_failing_tables", Kind.GAUGE, "Tables whose last merge failed: their batches wait and are retried."
    )
    WAITING_TABLES = Entry(
        "keyfold_tables_waiting_for_compaction",
        Kind.GAUGE,
        "Tables whose merges wait for a compaction, because they have too many runs.",
    )
    OVERDUE_TABLES = Entry(
        "keyfold_overdue_tables",
        Kind.GAUGE,
        "Tables whose oldest staged batch waits more than a second longer than merge.max-staleness, by reason.",
        {"reason": tuple(OverdueReason)},
    )
    PUBLISHED_BEHIND = Entry(
        "keyfold_published_behind_seconds",
        Kind.GAUGE,
        "Longest time that a batch waits for a version of its table that other engines read; 0 if none does.",
        {"format": tuple(Format)},
    )
    SET_ASIDE_BATCHES = Entry(
        "keyfold_set_aside_batches", Kind.GAUGE, "Batches that no merge takes: their records or files are at fault."
    )
    SET_ASIDE_EVENTS = Entry(
        "keyfold_set_aside_events", Kind.GAUGE, "Change events with faults that tables keep until they are retried."
    )
    DAMAGED_FILES = Entry(
        "keyfold_damaged_files", Kind.GAUGE, "Files that the catalog names and that are not what was written."
    )
    UNCLAIMED_SECONDS = Entry(
        "keyfold_oldest_unclaimed_task_seconds",
        Kind.GAUGE,
        "Time since the oldest merge or compaction that no worker has claimed was requested; 0 if there is none, or a "
        "worker holds a lease.",
    )
    BACKUP_AGE = Entry(
        "keyfold_backup_age_seconds", Kind.GAUGE, "Time since the last backup ended; absent before the first."
    )
    EXPIRES_SECONDS = Entry(
        "keyfold_expires_seconds",
        Kind.GAUGE,
        "Time until the TLS certificate, and the next API token, expire; absent without one.",
        {"what": ("certificate", "token")},
    )
    CATALOG_UP = Entry("keyfold_catalog_up", Kind.GAUGE, "1 if the catalog answered this scrape in time, else 0.")
    WAREHOUSE_WRITABLE = Entry(
        "keyfold_warehouse_writable", Kind.GAUGE, "1 if a file could be written to the warehouse just now, else 0."
    )
    FREE_BYTES = Entry(
        "keyfold_free_bytes",
        Kind.GAUGE,
        "Room on the disk of the warehouse (where it is one of this machine) and of the data folder.",
        {"disk": ()},
    )
    IMAGES = Entry("keyfold_images", Kind.GAUGE, "Images on this machine's disk.")
    IMAGE_BYTES = Entry("keyfold_image_bytes", Kind.GAUGE, "Bytes of the images on this machine's disk.")
    PROCESS_STARTS = Entry(
        "keyfold_process_starts", Kind.COUNTER, "How often a process of the service was started.", _OF_PROCESS
    )
    PROCESS_CPU = Entry(
        "process_cpu_seconds", Kind.COUNTER, "Total user and system CPU time spent in seconds.", _OF_PROCESS
    )
    PROCESS_MEMORY = Entry("process_resident_memory_bytes", Kind.GAUGE, "Resident memory size in bytes.", _OF_PROCESS)
    PROCESS_VIRTUAL = Entry("process_virtual_memory_bytes", Kind.GAUGE, "Virtual memory size in bytes.", _OF_PROCESS)
    PROCESS_BEGAN = Entry(
        "process_start_time_seconds",
        Kind.GAUGE,
        "Start time of the process since unix epoch in seconds.",
        _OF_PROCESS,
    )
    PROCESS_FILES = Entry("process_open_fds", Kind.GAUGE, "Number of open file descriptors.", _OF_PROCESS)
    PROCESS_MOST_FILES = Entry("process_max_fds", Kind.GAUGE, "Maximum number of open file descriptors.", _OF_PROCESS)


ENTRIES: Final[Sequence[Entry]] = tuple(metric.value for metric in (*Counted, *Measured))
