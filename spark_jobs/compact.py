"""The compaction job: neighbouring runs combined row by row into one (design §5)."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.connect import functions as F  # noqa: N812  # the name that PySpark's own documentation uses
from pyspark.sql.connect.session import SparkSession

from app.core.epochs import same_fold
from app.core.merge_plan import LIVE_COLUMN, MergePlan
from spark_jobs.bitmaps import register_bitmaps
from spark_jobs.expressions import carried_over, combined, range_count, sorted_within, spread, state_schema

ROWS_PER_RANGE = 1_000_000


@dataclass(frozen=True)
class StoredRun:
    """One run: the plan under which it was written, and the URIs of its files."""

    plan: MergePlan
    files: tuple[str, ...]


@dataclass(frozen=True)
class CompactionJob:
    """Which runs to combine, oldest first, under which plan; the rows in all, the folder URI of the run to write.

    ``oldest``: nothing older lies below, so rows that only hide older ones can go where the plan allows it.
    """

    plan: MergePlan
    runs: tuple[StoredRun, ...]
    rows: int
    output: str
    oldest: bool


def run_compaction(spark: SparkSession, job: CompactionJob) -> None:
    """Combines ``job.runs`` and writes one run, laid out as ``run_merge`` does."""
    if job.plan.needs_bitmaps:
        register_bitmaps(spark)
    rows = _combined_runs(spark, job)
    if job.oldest and job.plan.forgets_dead_rows:
        rows = rows.where(F.col(LIVE_COLUMN))
    sorted_within(job.plan, rows).write.mode("overwrite").parquet(job.output)


def _combined_runs(spark: SparkSession, job: CompactionJob) -> DataFrame:
    """All runs combined; those of a plan that meant something else first enter the next plan as its first records."""
    ranges = range_count(job.rows, ROWS_PER_RANGE)
    carried: list[DataFrame] = []
    previous = job.plan
    for plan, runs in _epochs(job):
        entered = [spread(carried_over(previous, plan, rows), ranges) for rows in carried]
        frames = [spread(spark.read.schema(state_schema(plan)).parquet(*run.files), ranges) for run in runs]
        carried, previous = [_chained(plan, [*entered, *frames], oldest=job.oldest)], plan
    if previous is not job.plan:
        return spread(carried_over(previous, job.plan, carried[0]), ranges)
    return carried[0]


def _epochs(job: CompactionJob) -> list[tuple[MergePlan, list[StoredRun]]]:
    """Neighbouring runs whose state means the same, each with the plan that reads them (columns are found by id)."""
    epochs: list[tuple[MergePlan, list[StoredRun]]] = []
    for run in job.runs:
        plan = job.plan if same_fold(run.plan.schema, job.plan.schema) else run.plan
        if epochs and same_fold(epochs[-1][0].schema, plan.schema):
            epochs[-1] = (plan, [*epochs[-1][1], run])
        else:
            epochs.append((plan, [run]))
    return epochs


def _chained(plan: MergePlan, frames: list[DataFrame], *, oldest: bool) -> DataFrame:
    """The frames combined, newest first: the small young runs are joined together before they meet the large old
    one.
    """
    rows = frames[-1]
    for place, older in reversed(list(enumerate(frames[:-1]))):
        rows = combined(plan, older, rows, oldest=oldest and place == 0)
    return rows
