"""The compaction job: neighbouring runs combined row by row into one (design §5).

Runs are sorted by token, and the token ranges of their files are known, so nothing is shuffled: each task reads one
range of all runs, combines them and writes one file.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.connect.session import SparkSession

from app.core.plan.jobs import CompactionJob
from spark_jobs.bitmaps import register_bitmaps
from spark_jobs.expressions import compacted
from spark_jobs.stored_runs import combined_runs
from spark_jobs.token_ranges import TokenRange, write_in_ranges, write_rows


def run_compaction(spark: SparkSession, job: CompactionJob) -> None:
    """Combines ``job.runs`` and writes one run, laid out as ``run_merge`` does."""
    if job.plan.needs_bitmaps:
        register_bitmaps(spark)
    write_in_ranges(
        spark,
        job.sizes.ranges,
        lambda one: _combined_in(spark, job, one),
        lambda rows, mode: write_rows(job.plan, rows, job.output, mode=mode),
    )


def _combined_in(spark: SparkSession, job: CompactionJob, one: TokenRange) -> DataFrame | None:
    """The combined rows of one range of tokens; None where no run has a file."""
    runs = one.parts(job.runs)
    if not runs:
        return None
    rows = combined_runs(spark, job.plan, runs, one.of, oldest=job.oldest, in_one_task=True)
    return compacted(job.plan, rows, job.now, oldest=job.oldest)
