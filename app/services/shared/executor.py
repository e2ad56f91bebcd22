"""The interface of the merge executor, and the site at which merges and compactions run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.catalog.database import CatalogDatabase
from app.files.layout import Warehouse
from app.kernel.tasks import Job, Progress, Result


class MergeExecutor(Protocol):
    """Runs tasks: on Spark in the service, in the process in most tests.

    Every job can be stopped by its tag and then raises ``Cancelled``.
    """

    def ready(self) -> bool:
        """Return within about two seconds whether it could start a merge now."""

    def warm_up(self) -> None:
        """Run a small job, so that the first merge does not wait for lazy loading."""

    def missing(self) -> tuple[str, ...]:
        """Return the missing requirements of the workers that run tasks, one sentence each. Raise ``Unavailable``."""

    def run(self, tag: str, job: Job, report: Progress) -> list[Result]:
        """Run the tasks of a job; return a result for each, in order. ``report`` is called with their progress."""

    def cancel(self, tag: str) -> None:
        """Stop the job ``tag``."""


@dataclass(frozen=True)
class MergeSite:
    """Where merges run: the catalog, the files, the executor, how long a silent worker keeps its lease (seconds), and
    the clock (epoch seconds) of merges and compactions.
    """

    database: CatalogDatabase
    warehouse: Warehouse
    executor: MergeExecutor
    lease_seconds: float
    clock: Callable[[], float] = time.time
