"""Spark as the service sees it: one server or remote connection, and the jobs that run on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql.connect.session import SparkSession

from app.core.errors import Unfoldable
from app.core.plan.jobs import ChangesJob, CompactionJob, Job, MergeJob, OverflowJob, Progress, Result
from spark_jobs.changes import write_changes
from spark_jobs.compact import run_compaction
from spark_jobs.merge import run_merge
from spark_jobs.overflow import find_overflow
from spark_jobs.server import EmbeddedServer
from spark_jobs.session import SparkConnection

_DATA_EXCEPTION = "22"  # the class of SQLSTATE: a number out of range, text that is no value of its type

JOBS: Mapping[type[Job], Callable[[SparkSession, Any], Result]] = {
    MergeJob: run_merge,
    CompactionJob: run_compaction,
    ChangesJob: write_changes,
    OverflowJob: find_overflow,
}


class SparkJobs:
    """Runs merges and compactions; every job can be cancelled by its tag and then raises ``JobCancelled``.

    With ``remote`` None an embedded server is started in ``folder``.
    """

    def __init__(
        self, folder: Path, remote: str | None, master: str, heap_bytes: int | None, umask: int = 0o077
    ) -> None:
        self.server = None if remote else EmbeddedServer(folder, master=master, heap_bytes=heap_bytes, umask=umask)
        self.connection = SparkConnection(remote or self._embedded())

    @classmethod
    def on_server(
        cls,
        folder: Path,
        *,
        java: Path,
        java_options: Sequence[str],
        heap_bytes: int,
        stop_seconds: int,
        start_timeout_seconds: float,
    ) -> SparkJobs:
        """Jobs of an embedded server of another making, which is not started yet."""
        jobs = cls(folder, None, "local[*]", heap_bytes)
        jobs.server = EmbeddedServer(
            folder, java=java, java_options=java_options, heap_bytes=heap_bytes, stop_seconds=stop_seconds
        )
        jobs.connection = SparkConnection(jobs.server, start_timeout_seconds=start_timeout_seconds)
        return jobs

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

    def run(self, tag: str, job: Job, report: Progress) -> Result:
        """Do the job, telling ``report`` how far it is. Raises ``Unfoldable`` for values that an expression refuses."""
        with self.connection.job(tag, report) as spark:
            try:
                return JOBS[type(job)](spark, job)
            except PySparkException as error:
                if (error.getSqlState() or "").startswith(_DATA_EXCEPTION):
                    raise Unfoldable((error.getMessage() or str(error)).strip().splitlines()[0]) from error
                raise

    def cancel(self, tag: str) -> None:
        """Stop the job ``tag``."""
        self.connection.cancel(tag)

    def close(self) -> None:
        """End the session, and the embedded server if there is one."""
        self.connection.close()
        if self.server is not None:
            self.server.stop()
