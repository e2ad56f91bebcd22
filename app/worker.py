"""The merge worker: claims pending merges and runs them on Spark; with ``app.main`` the only code that knows Spark
jobs.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.core.errors import KeyfoldError
from app.core.jobs import ChangesJob, CompactionJob, MergeJob, StoredRun
from app.core.merge_plan import MergePlan
from app.services.compactions import run_next_compaction
from app.services.executor import MergeSite, Progress
from app.services.merges import batches_wait, request_due_merges, run_next_merge
from app.services.sweeps import sweep
from app.settings import Settings

if TYPE_CHECKING:
    from spark_jobs.executor import SparkJobs

logger = logging.getLogger(__name__)
SWEEP_SECONDS = 300.0
IDLE_SECONDS = 1.0  # how soon an idle worker sees what another process has committed


class SparkExecutor:
    """Runs merges and compactions on Spark (``app.services.executor.MergeExecutor``).

    Spark is loaded, and its embedded server started, at the first use or by ``open``, in whatever thread: PySpark takes
    as long to load as the rest of the service, and the API must answer before.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._jobs: SparkJobs | None = None

    def open(self) -> SparkJobs:
        """Spark, started when it was not. Raises ``Unavailable`` when there is no Java."""
        with self._lock:
            if self._jobs is None:
                from spark_jobs import executor  # noqa: PLC0415  # see the class

                heap = self._settings.spark_heap_mib
                remote = self._settings.spark_remote
                self._jobs = executor.SparkJobs(
                    Path(self._settings.folder).resolve() / "spark",
                    None if remote is None else remote.get_secret_value(),
                    self._settings.spark_master,
                    None if heap is None else heap * 1024 * 1024,
                )
            self._jobs.start()
            return self._jobs

    def ready(self) -> bool:
        """See ``MergeExecutor.ready``; false before Spark is loaded."""
        return self._jobs is not None and self._jobs.ready()

    def warm_up(self) -> None:
        """See ``MergeExecutor.warm_up``."""
        self.open().warm_up()

    def merge(self, tag: str, job: MergeJob, on_progress: Progress) -> None:
        """See ``MergeExecutor.merge``."""
        self.open().merge(tag, job, on_progress)

    def compact(self, tag: str, job: CompactionJob, on_progress: Progress) -> None:
        """See ``MergeExecutor.compact``."""
        self.open().compact(tag, job, on_progress)

    def write_changes(self, tag: str, job: ChangesJob, on_progress: Progress) -> None:
        """See ``MergeExecutor.write_changes``."""
        self.open().write_changes(tag, job, on_progress)

    def overflows(
        self, tag: str, plan: MergePlan, runs: Sequence[StoredRun], on_progress: Progress
    ) -> Mapping[str, Any] | None:
        """See ``MergeExecutor.overflows``."""
        return self.open().overflows(tag, plan, runs, on_progress)

    def cancel(self, tag: str) -> None:
        """See ``MergeExecutor.cancel``."""
        if self._jobs is not None:
            self._jobs.cancel(tag)

    def close(self) -> None:
        """End Spark, if it was started."""
        with self._lock:
            if self._jobs is not None:
                self._jobs.close()


class Worker:
    """Two threads, one that merges what is due and one that compacts beside it, until they are stopped."""

    def __init__(self, site: MergeSite, poll_seconds: float) -> None:
        self.site = site
        self.poll_seconds = poll_seconds
        self.name = f"worker-{uuid.uuid4().hex[:12]}"
        self._stopped = threading.Event()
        jobs = {"merge": self.run, "compact": self._compact, "sweep": self._sweep}
        self._threads = [
            threading.Thread(target=job, name=f"{self.name}-{name}", daemon=True) for name, job in jobs.items()
        ]

    def start(self) -> None:
        """Begin working in threads."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """End after the jobs under way; one that takes longer is left to the next worker when its lease runs out."""
        self._stopped.set()
        self.site.database.wake()
        deadline = time.monotonic() + timeout_seconds
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))

    def run(self) -> None:
        """Merge until stopped; a catalog that does not answer is waited for."""
        self._warm_up()
        self._repeat(self._merge_next, lambda: batches_wait(self.site.database))

    def _merge_next(self) -> bool:
        request_due_merges(self.site.database)
        return run_next_merge(self.site, self.name)

    def _compact(self) -> None:
        self._repeat(lambda: run_next_compaction(self.site, self.name), lambda: False)

    def _repeat(self, work: Callable[[], bool], soon: Callable[[], bool]) -> None:
        """Do ``work`` again and again. When there was none, rest until this process commits something, or a while that
        is short if there will be work ``soon``.
        """
        while not self._stopped.is_set():
            seen, pause = self.site.database.commits, IDLE_SECONDS
            try:
                if work():
                    continue
                pause = self.poll_seconds if soon() else max(self.poll_seconds, IDLE_SECONDS)
            except KeyfoldError as error:
                logger.warning("the worker waits: %s", error)
            except Exception:
                logger.exception("the worker goes on after an error")
            self.site.database.wait_for_commit(seen, pause)

    def _warm_up(self) -> None:
        """The first queries of a Spark server take seconds; better before the first merge than in it."""
        try:
            self.site.executor.warm_up()
        except Exception:
            logger.warning("Spark could not be warmed up; merges try again", exc_info=True)

    def _sweep(self) -> None:
        while not self._stopped.wait(SWEEP_SECONDS):
            try:
                sweep(self.site.database, self.site.warehouse)
            except Exception:
                logger.warning("the sweep failed and is tried again later", exc_info=True)
