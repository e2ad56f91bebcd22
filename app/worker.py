"""The merge worker: claims pending merges and runs them on Spark; with ``app.main`` the only code that knows Spark
jobs.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.core.errors import KeyfoldError
from app.core.merge_plan import MergePlan
from app.services.merges import MergeCancelled, MergeSite, Progress, request_due_merges, run_next_merge
from app.services.sweeps import sweep
from app.settings import Settings
from spark_jobs.compact import CompactionJob, StoredRun, run_compaction
from spark_jobs.merge import MergeJob, run_merge
from spark_jobs.overflow import find_overflow
from spark_jobs.server import EmbeddedServer
from spark_jobs.session import JobCancelled, SparkConnection

logger = logging.getLogger(__name__)
SWEEP_SECONDS = 300.0


class SparkExecutor:
    """Runs merges and compactions on one Spark connection (``app.services.merges.MergeExecutor``)."""

    def __init__(self, connection: SparkConnection, folder: Path | None = None) -> None:
        self.connection = connection
        self.folder = folder

    def ready(self) -> bool:
        """Whether Spark answers."""
        return self.connection.ready()

    def warm_up(self) -> None:
        """See ``MergeExecutor.warm_up``."""
        self.connection.warm_up(self.folder)

    def merge(
        self, tag: str, plan: MergePlan, batches: Mapping[str, int], records: int, output: str, on_progress: Progress
    ) -> None:
        """See ``MergeExecutor.merge``."""
        try:
            with self.connection.job(tag, on_progress) as spark:
                run_merge(spark, MergeJob(plan, batches, records, output))
        except JobCancelled as error:
            raise MergeCancelled(tag) from error

    def compact(
        self,
        tag: str,
        plan: MergePlan,
        runs: Sequence[tuple[MergePlan, tuple[str, ...]]],
        rows: int,
        output: str,
        oldest: bool,
        on_progress: Progress,
    ) -> None:
        """See ``MergeExecutor.compact``."""
        try:
            with self.connection.job(tag, on_progress) as spark:
                run_compaction(spark, CompactionJob(plan, tuple(StoredRun(*run) for run in runs), rows, output, oldest))
        except JobCancelled as error:
            raise MergeCancelled(tag) from error

    def overflows(
        self, tag: str, plan: MergePlan, runs: Sequence[tuple[str, ...]], on_progress: Progress
    ) -> Mapping[str, Any] | None:
        """See ``MergeExecutor.overflows``."""
        try:
            with self.connection.job(tag, on_progress) as spark:
                return find_overflow(spark, plan, runs)
        except JobCancelled as error:
            raise MergeCancelled(tag) from error

    def cancel(self, tag: str) -> None:
        """See ``MergeExecutor.cancel``."""
        self.connection.cancel(tag)


def open_spark(settings: Settings) -> tuple[EmbeddedServer | None, SparkConnection]:
    """The Spark that ``settings`` name: an embedded server (not yet started) or a remote one."""
    if settings.spark_remote is not None:
        return None, SparkConnection(settings.spark_remote.get_secret_value())
    heap = None if settings.spark_heap_mib is None else settings.spark_heap_mib * 1024 * 1024
    folder = Path(settings.folder).resolve() / "spark"
    server = EmbeddedServer(folder, master=settings.spark_master, heap_bytes=heap)
    return server, SparkConnection(server)


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
