"""Spark as the service sees it: one server or remote connection, and the jobs that run on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.core.merge_plan import MergePlan
from spark_jobs.compact import CompactionJob, run_compaction
from spark_jobs.merge import MergeJob, run_merge
from spark_jobs.overflow import find_overflow
from spark_jobs.server import EmbeddedServer
from spark_jobs.session import SparkConnection
from spark_jobs.stored_runs import StoredRun

Progress = Callable[[float, Mapping[str, int]], None]


class SparkJobs:
    """Runs merges and compactions; every job can be cancelled by its tag and then raises ``JobCancelled``.

    With ``remote`` None an embedded server is started in ``folder``.
    """

    def __init__(self, folder: Path, remote: str | None, master: str, heap_bytes: int | None) -> None:
        self.folder = folder
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
        self.connection.warm_up(self.folder if self.server is not None else None)

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
        """Fold staging files (URI to batch number) into one run below the URI ``output``; ``now`` in epoch seconds."""
        with self.connection.job(tag, on_progress) as spark:
            run_merge(spark, MergeJob(plan, batches, records, output, now))

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
        """Combine neighbouring runs (plan and file URIs of each, oldest first) into one below the URI ``output``;
        ``now`` in epoch seconds.
        """
        with self.connection.job(tag, on_progress) as spark:
            stored = tuple(StoredRun(*run) for run in runs)
            run_compaction(spark, CompactionJob(plan, stored, rows, output, oldest, now))

    def overflows(
        self, tag: str, plan: MergePlan, runs: Sequence[tuple[MergePlan, tuple[str, ...]]], on_progress: Progress
    ) -> Mapping[str, Any] | None:
        """A key of the newest run whose total over all ``runs`` leaves its column; None if there is none."""
        with self.connection.job(tag, on_progress) as spark:
            return find_overflow(spark, plan, tuple(StoredRun(*run) for run in runs))

    def cancel(self, tag: str) -> None:
        """Stop the job ``tag``."""
        self.connection.cancel(tag)

    def close(self) -> None:
        """End the session, and the embedded server if there is one."""
        self.connection.close()
        if self.server is not None:
            self.server.stop()
