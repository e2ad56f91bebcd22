"""Loads: records that share no key are state rows already, so millions are written without grouping them."""

from __future__ import annotations

from dataclasses import replace

from app.core.plan.jobs import Job, MergeJob, Progress, Result
from app.spark import SparkExecutor
from spark_jobs.executor import SparkJobs


class LiftingExecutor(SparkExecutor):
    """Merges on ``spark`` by lifting each record by itself, however many there are: nobody compares their keys. Only
    right while none comes twice in what is merged.
    """

    def __init__(self, spark: SparkExecutor) -> None:
        self._spark = spark

    def open(self) -> SparkJobs:
        """The other executor's Spark."""
        return self._spark.open()

    def cancel(self, tag: str) -> None:
        """As the other executor does."""
        self._spark.cancel(tag)

    def run(self, tag: str, job: Job, report: Progress) -> Result:
        """Do the job; of a merge, write every staged record as a state row."""
        return super().run(tag, replace(job, distinct_keys=True) if isinstance(job, MergeJob) else job, report)
