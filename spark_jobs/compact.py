"""The compaction job: neighbouring runs combined row by row into one (design §5)."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.connect.session import SparkSession

from app.core.merge_plan import MergePlan
from spark_jobs.bitmaps import register_bitmaps
from spark_jobs.expressions import compacted, range_count, sorted_within, spread
from spark_jobs.stored_runs import StoredRun, combined_runs

ROWS_PER_RANGE = 1_000_000


@dataclass(frozen=True)
class CompactionJob:
    """Which runs to combine, oldest first, under which plan; the rows in all, the folder URI of the run to write.

    ``oldest``: nothing older lies below, so rows that only hide older ones can go where the plan allows it. ``now`` is
    the time of the compaction in epoch seconds.
    """

    plan: MergePlan
    runs: tuple[StoredRun, ...]
    rows: int
    output: str
    oldest: bool
    now: int


def run_compaction(spark: SparkSession, job: CompactionJob) -> None:
    """Combines ``job.runs`` and writes one run, laid out as ``run_merge`` does."""
    if job.plan.needs_bitmaps:
        register_bitmaps(spark)
    ranges = range_count(job.rows, ROWS_PER_RANGE)
    rows = combined_runs(spark, job.plan, job.runs, lambda rows: spread(rows, ranges), oldest=job.oldest)
    rows = compacted(job.plan, rows, job.now, oldest=job.oldest)
    sorted_within(job.plan, rows).write.mode("overwrite").parquet(job.output)
