"""Spark as the service sees it: one server or remote connection, and the jobs that run on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.core.plan.jobs import ChangesJob, CompactionJob, MergeJob, StoredRun
from app.core.plan.merge_plan import MergePlan
from spark_jobs.changes import write_changes
from spark_jobs.compact import run_compaction
from spark_jobs.merge import run_merge
from spark_jobs.overflow import find_overflow
from spark_jobs.server import EmbeddedServer
from spark_jobs.session import SparkConnection

Progress = Callable[[float, Mapping[str, int]], None]


class SparkJobs:
    """Runs merges and compactions; every job can be cancelled by its tag and then raises ``JobCancelled``.

    With ``remote`` None an embedded server is started in ``folder``.
    """

    def __init__(self, folder: Path, remote: str | None, master: str, heap_bytes: int | None) -> None:
        self.server = None if remote else EmbeddedServer(folder, master=master, heap_bytes=heap_bytes)
        self.connection = SparkConnection(remote or self._embedded())

    def _embedded(self) -> EmbeddedServer:
        assert self.server is not None, "without a remote there is an embedded server"
        return self.server

    def start(self) -> None:
        """Start the embedded server, if there is one, and return at once. Raises ``Unavailable`` without Java."""
        if self.server is not None:
            self.server.start()

    def ready(self) -> bool:
        """Whether Spark answers; takes at most about two seconds."""
        return self.connection.ready()

    def warm_up(self) -> None:
        """Run something small, so that the first merge does not pay for what only first queries do."""
        self.connection.warm_up()

    def merge(self, tag: str, job: MergeJob, on_progress: Progress) -> None:
        """Fold staged records into new runs."""
        with self.connection.job(tag, on_progress) as spark:
            run_merge(spark, job)

    def compact(self, tag: str, job: CompactionJob, on_progress: Progress) -> None:
        """Combine neighbouring runs."""
        with self.connection.job(tag, on_progress) as spark:
            run_compaction(spark, job)

    def write_changes(self, tag: str, job: ChangesJob, on_progress: Progress) -> None:
        """Write the changes of rows that runs bring."""
        with self.connection.job(tag, on_progress) as spark:
            write_changes(spark, job)

    def overflows(
        self, tag: str, plan: MergePlan, runs: Sequence[StoredRun], on_progress: Progress
    ) -> Mapping[str, Any] | None:
        """A key of the newest run whose total over all ``runs`` leaves its column; None if there is none."""
        with self.connection.job(tag, on_progress) as spark:
            return find_overflow(spark, plan, runs)

    def cancel(self, tag: str) -> None:
        """Stop the job ``tag``."""
        self.connection.cancel(tag)

    def close(self) -> None:
        """End the session, and the embedded server if there is one."""
        self.connection.close()
        if self.server is not None:
            self.server.stop()
