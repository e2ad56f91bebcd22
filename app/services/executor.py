"""The merge executor as services see it, and where merges and compactions run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.catalog.database import CatalogDatabase
from app.core.plan.jobs import Job, Progress, Result
from app.storage.layout import Warehouse


class MergeExecutor(Protocol):
    """What runs merges: Spark in the service, anything with the same meaning in a test.

    Every job can be stopped by its tag and then raises ``Cancelled``.
    """

    def ready(self) -> bool:
        """Whether it could start a merge now; returns within about two seconds."""

    def warm_up(self) -> None:
        """Run something small, so that the first merge does not pay for what only first queries do."""

    def run(self, tag: str, job: Job, report: Progress) -> Result:
        """Do the job, telling ``report`` how far it is."""

    def cancel(self, tag: str) -> None:
        """Stop the job ``tag``."""


@dataclass(frozen=True)
class MergeSite:
    """Where merges run: the catalog, the files, the executor, how long a silent worker keeps its lease (seconds), the
    time (epoch seconds) that merges and compactions take for now, how many records are few enough to be folded in the
    worker instead (0: none are), how much memory those of larger merges may take that it lifts (0: it does none), and
    how large the files may be that it compacts (0: none but few rows).
    """

    database: CatalogDatabase
    warehouse: Warehouse
    executor: MergeExecutor
    lease_seconds: float
    clock: Callable[[], float] = time.time
    small_merge_records: int = 0
    lifted_merge_bytes: int = 0
    column_compaction_bytes: int = 0
