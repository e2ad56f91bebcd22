"""The merge executor on Spark: one embedded server or remote connection, and the job that runs tasks on it."""

from __future__ import annotations

import uuid

from app.kernel.tasks import Job, Progress, Result, from_text
from spark_jobs.parcels import PARCEL_COLUMNS, RESULT_COLUMNS, parcels_of, run_parcels
from spark_jobs.probe import missing_on
from spark_jobs.server import EmbeddedServer
from spark_jobs.session import SparkConnection


class SparkJobs:
    """Runs merges and compactions on an embedded server or one at a URL. Every job can be cancelled by its tag and then
    raises ``JobCancelled``.
    """

    def __init__(self, server: EmbeddedServer | str) -> None:
        self.connection = SparkConnection(server)

    def ready(self) -> bool:
        """Return whether Spark answers; this takes at most about two seconds."""
        return self.connection.ready()

    def warm_up(self) -> None:
        """Run empty parcels, so that the first merge does not wait for Python workers to start."""
        self._run(f"warm-up-{uuid.uuid4()}", Job("", "warm-up", ()), None)

    def missing(self) -> tuple[str, ...]:
        """Return the missing requirements of the server's Python workers, one sentence each."""
        with self.connection.job(f"probe-{uuid.uuid4()}") as spark:
            return missing_on(spark)

    def run(self, tag: str, job: Job, report: Progress) -> list[Result]:
        """Run the tasks of a job; return a result for each, in order. ``report`` is called with their progress."""
        texts = self._run(tag, job, report)
        return [from_text(Result, texts[place]) for place in range(len(job.tasks))]

    def _run(self, tag: str, job: Job, report: Progress | None) -> dict[int, str]:
        rows = [(parcel,) for parcel in parcels_of(job)]
        with self.connection.job(tag, report, job.title) as spark:
            relation = spark.createDataFrame(rows, PARCEL_COLUMNS)
            return {row[0]: row[1] for row in relation.mapInArrow(run_parcels, RESULT_COLUMNS).collect()}

    def cancel(self, tag: str) -> None:
        """Stop the job ``tag``."""
        self.connection.cancel(tag)

    def close(self) -> None:
        """End the session."""
        self.connection.close()
