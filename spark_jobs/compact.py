"""The compaction job: neighbouring runs combined row by row into one (design §5)."""

from __future__ import annotations

from pyspark.sql.connect.session import SparkSession

from app.core.jobs import CompactionJob
from spark_jobs.bitmaps import register_bitmaps
from spark_jobs.expressions import compacted
from spark_jobs.layout import range_count, spread, write_rows
from spark_jobs.stored_runs import combined_runs


def run_compaction(spark: SparkSession, job: CompactionJob) -> None:
    """Combines ``job.runs`` and writes one run, laid out as ``run_merge`` does."""
    if job.plan.needs_bitmaps:
        register_bitmaps(spark)
    ranges = range_count(job.layout)
    rows = combined_runs(spark, job.plan, job.runs, lambda rows: spread(rows, ranges), oldest=job.oldest)
    write_rows(job.plan, compacted(job.plan, rows, job.now, oldest=job.oldest), job.output)
