"""The compaction job: neighbouring runs combined row by row into one (design §5)."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.connect import functions as F  # noqa: N812  # the name that PySpark's own documentation uses
from pyspark.sql.connect.session import SparkSession

from app.core.merge_plan import LIVE_COLUMN, MergePlan
from spark_jobs.expressions import combined, range_count, sorted_within, spread, state_schema

ROWS_PER_RANGE = 1_000_000


@dataclass(frozen=True)
class CompactionJob:
    """Which runs to combine: the file URIs of each, oldest run first, the rows in all, the folder URI of the run to
    write.

    ``oldest``: nothing older lies below, so rows that only hide older ones can go where the plan allows it.
    """

    plan: MergePlan
    runs: tuple[tuple[str, ...], ...]
    rows: int
    output: str
    oldest: bool


def run_compaction(spark: SparkSession, job: CompactionJob) -> None:
    """Combines ``job.runs`` and writes one run, laid out as ``run_merge`` does."""
    ranges = range_count(job.rows, ROWS_PER_RANGE)
    frames = [_read(spark, job, files, ranges) for files in job.runs]
    rows = frames[-1]
    # Newest first: the small young runs are joined together before they meet the large old one.
    for place, older in reversed(list(enumerate(frames[:-1]))):
        rows = combined(job.plan, older, rows, oldest=job.oldest and place == 0)
    if job.oldest and job.plan.forgets_dead_rows:
        rows = rows.where(F.col(LIVE_COLUMN))
    sorted_within(job.plan, rows).write.mode("overwrite").parquet(job.output)


def _read(spark: SparkSession, job: CompactionJob, files: tuple[str, ...], ranges: int) -> DataFrame:
    return spread(spark.read.schema(state_schema(job.plan)).parquet(*files), ranges)
