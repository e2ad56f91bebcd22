"""The merge executor as services see it, and where merges and compactions run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from app.catalog.database import CatalogDatabase
from app.core.plan.jobs import ChangesJob, CompactionJob, MergeJob, StoredRun
from app.core.plan.merge_plan import MergePlan
from app.storage.layout import Warehouse

Progress = Callable[[float, Mapping[str, int]], None]


class MergeExecutor(Protocol):
    """What runs merges: Spark in the service, anything with the same meaning in a test.

    Every job can be stopped by its tag and then raises ``Cancelled``.
    """

    def ready(self) -> bool:
        """Whether it could start a merge now; returns within about two seconds."""

    def warm_up(self) -> None:
        """Run something small, so that the first merge does not pay for what only first queries do."""

    def merge(self, tag: str, job: MergeJob, on_progress: Progress) -> None:
        """Fold staged records into new runs, one in each partition they are in."""

    def compact(self, tag: str, job: CompactionJob, on_progress: Progress) -> None:
        """Combine neighbouring runs into one in each partition they are in."""

    def write_changes(self, tag: str, job: ChangesJob, on_progress: Progress) -> None:
        """Write the changes of rows that runs bring."""

    def overflows(
        self, tag: str, plan: MergePlan, runs: Sequence[StoredRun], on_progress: Progress
    ) -> Mapping[str, Any] | None:
        """A key of the newest run whose total over all ``runs`` leaves its column: its state row; None if there is
        none.
        """

    def cancel(self, tag: str) -> None:
        """Stop the job ``tag``."""


@dataclass(frozen=True)
class MergeSite:
    """Where merges run: the catalog, the files, the executor, how long a silent worker keeps its lease (seconds), and
    the time (epoch seconds) that merges and compactions take for now.
    """

    database: CatalogDatabase
    warehouse: Warehouse
    executor: MergeExecutor
    lease_seconds: float
    clock: Callable[[], float] = time.time
