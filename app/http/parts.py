"""The open parts of a serving process, and its threads for writing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, ParamSpec, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from app.catalog.connections.writers import hurried
from app.catalog.database import CatalogDatabase
from app.files.layout import Warehouse
from app.services.access.token_gate import TokenGate
from app.services.batches.admission import Admission
from app.services.batches.awaited_batches import AwaitedBatches
from app.services.batches.group_commit import GroupCommit
from app.services.operating.audit_log import AuditLog
from app.services.operating.readiness import Conditions
from app.services.rows.kept_views import Views
from app.services.rows.lookups import Images
from app.services.rows.scan_pages import ScanRoom
from app.services.shared.polled import Refreshed
from app.services.shared.rates import Rates
from app.services.snapshots.heads import Heads
from app.settings import Settings
from app.telemetry.exposition import Reading
from app.telemetry.hour import Hour

GRANT: Final = "keyfold.grant"  # the member of the scope with the caller's grant
P = ParamSpec("P")
T = TypeVar("T")
WRITERS_THREADS: Final = 40  # uploads that are decoded, written or queued at a time
LOOKUPS_THREADS: Final = 20


@dataclass(frozen=True)
class Parts:
    """The open parts of one serving process. ``spark_ready`` is true if merges are left to other services. ``scrapes``
    are read for metrics, ``condition`` also for readiness; ``build`` has the versions, and ``hour`` the metrics of the
    last hour.
    """

    settings: Settings
    database: CatalogDatabase
    warehouse: Warehouse
    images: Images
    spark_ready: Callable[[], bool]
    gate: TokenGate
    rates: Rates
    heads: Heads
    commits: GroupCommit
    views: Views
    awaited: AwaitedBatches
    audit: AuditLog | None
    admission: Admission
    condition: Conditions
    scrapes: Refreshed[list[Reading]]
    build: Reading
    hour: Hour
    writers: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(WRITERS_THREADS))
    lookups: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(LOOKUPS_THREADS))
    scans: ScanRoom = field(default_factory=ScanRoom)


async def in_writers_thread(parts: Parts, work: Callable[P, T], *args: P.args, **given: P.kwargs) -> T:
    """Return the result of ``work``, which writes to the catalog, in a thread of the writers; readers have other
    threads.

    Raise ``NotStored`` if it would queue behind others for a catalog that does not answer.
    """

    def hurry() -> T:
        with hurried():
            return work(*args, **given)

    return await run_sync(hurry, limiter=parts.writers)
