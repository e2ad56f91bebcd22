"""The merge worker: claims pending merges and runs them on Spark; with ``app.main`` the only code that knows Spark
jobs.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.core.errors import KeyfoldError
from app.core.merge_plan import MergePlan
from app.services.merges import MergeSite, Progress, request_due_merges, run_next_merge
from app.services.sweeps import sweep
from app.settings import Settings

if TYPE_CHECKING:
    from spark_jobs.executor import SparkJobs

logger = logging.getLogger(__name__)
SWEEP_SECONDS = 300.0


class SparkExecutor:
    """Runs merges and compactions on Spark (``app.services.merges.MergeExecutor``).

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

    def merge(
        self,
        tag: str,
        plan: MergePlan,
        batches: Mapping[str, int],
        records: int,
        output: str,
        now: int,
        on_progress: Progress,
    ) -> None:
        """See ``MergeExecutor.merge``."""
        self.open().merge(tag, plan, batches, records, output, now, on_progress)

    def compact(
        self,
        tag: str,
        plan: MergePlan,
        runs: Sequence[tuple[MergePlan, tuple[str, ...]]],
        rows: int,
        output: str,
        oldest: bool,
        now: int,
        on_progress: Progress,
    ) -> None:
        """See ``MergeExecutor.compact``."""
        self.open().compact(tag, plan, runs, rows, output, oldest, now, on_progress)

    def overflows(
        self, tag: str, plan: MergePlan, runs: Sequence[tuple[MergePlan, tuple[str, ...]]], on_progress: Progress
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
    """One thread that asks for due merges and runs what is pending, until it is stopped."""

    def __init__(self, site: MergeSite, poll_seconds: float) -> None:
        self.site = site
        self.poll_seconds = poll_seconds
        self.name = f"worker-{uuid.uuid4().hex[:12]}"
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self.run, name=self.name, daemon=True)

    def start(self) -> None:
        """Begin working in a thread."""
        self._thread.start()

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """End after the merge under way; one that takes longer is left to the next worker when its lease runs out."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def run(self) -> None:
        """Work until stopped; a catalog that does not answer is waited for."""
        threading.Thread(target=self._sweep, name="sweep", daemon=True).start()
        self._warm_up()
        while not self._stopped.is_set():
            try:
                request_due_merges(self.site.database)
                if run_next_merge(self.site, self.name):
                    continue
            except KeyfoldError as error:
                logger.warning("the worker waits: %s", error)
            except Exception:
                logger.exception("the worker goes on after an error")
            self._stopped.wait(self.poll_seconds)

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
