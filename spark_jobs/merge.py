"""The merge job: staged batches folded into one run; no file of the table is read (design §2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.connect.session import SparkSession

from app.core.merge_plan import MergePlan
from spark_jobs.bitmaps import register_bitmaps
from spark_jobs.expressions import folded, range_count, record_schema, records, sorted_within, spread

ROWS_PER_RANGE = 1_000_000


@dataclass(frozen=True)
class MergeJob:
    """What to fold: the URIs of the staging files with their batch numbers, and the folder URI of the run to write.

    ``now`` is the time of the merge in epoch seconds.
    """

    plan: MergePlan
    batches: Mapping[str, int]
    records: int
    output: str
    now: int


def run_merge(spark: SparkSession, job: MergeJob) -> None:
    """Folds ``job.batches`` and writes the run's files, each sorted by token then key, of disjoint token ranges."""
    if job.plan.needs_bitmaps:
        register_bitmaps(spark)
    staged = spark.read.schema(record_schema(job.plan.schema)).parquet(*job.batches)
    numbers = {uri.rsplit("/", 1)[-1]: number for uri, number in job.batches.items()}
    rows = spread(records(job.plan, staged, numbers), range_count(job.records, ROWS_PER_RANGE))
    sorted_within(job.plan, folded(job.plan, rows, job.now)).write.mode("overwrite").parquet(job.output)
