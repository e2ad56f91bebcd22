"""The merge job: staged batches folded into one run; no file of the table is read (design §2)."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.connect import functions as F  # noqa: N812  # the name that PySpark's own documentation uses
from pyspark.sql.connect.session import SparkSession

from app.core.plan.jobs import MergeJob
from app.core.rules.spark_sql import quote
from spark_jobs.bitmaps import register_bitmaps
from spark_jobs.expressions import (
    RANGE_COLUMN,
    folded,
    key_names,
    lifted,
    merge_order,
    record_schema,
    records,
    without_substitution,
)
from spark_jobs.token_ranges import spread, write_rows


def run_merge(spark: SparkSession, job: MergeJob) -> None:
    """Folds ``job.batches`` and writes the run's files, each sorted by token then key, of disjoint token ranges; the
    records too where the table keeps them as its changelog.
    """
    if job.plan.needs_bitmaps:
        register_bitmaps(spark)
    staged = spark.read.schema(record_schema(job.plan.schema)).parquet(*job.batches)
    numbers = {uri.rsplit("/", 1)[-1]: number for uri, number in job.batches.items()}
    ranges = job.sizes.ranges
    rows = spread(records(job.plan, staged, numbers), ranges)
    lifts = job.distinct_keys and job.plan.lifts
    states = lifted(job.plan, rows, job.now) if lifts else folded(job.plan, rows, job.now, ranged=ranges > 1)
    write_rows(job.plan, states, job.output)
    if job.input_changelog is not None:
        _write_records(job, rows, job.input_changelog)


def _write_records(job: MergeJob, rows: DataFrame, output: str) -> None:
    """The records as they were posted, by key and merge order (merge-semantics §8.2)."""
    order = [*(F.col(quote(name)).asc_nulls_first() for name in key_names(job.plan)), *merge_order(job.plan)]
    without_substitution(rows.drop(RANGE_COLUMN)).sortWithinPartitions(*order).write.mode("overwrite").parquet(output)
