"""Runs as one relation: state rows of several runs combined, whatever schemas they were written under."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.connect.session import SparkSession

from app.core.plan import evolution
from app.core.plan.jobs import StoredRun
from app.core.plan.merge_plan import MergePlan
from spark_jobs.expressions import carried_over, combined, combined_at_once, combines_at_once, converted, state_schema

Arranged = Callable[[DataFrame, StoredRun | None], DataFrame]
"""What is wanted of rows, and where: those of the run, or (None) what several runs came to."""


def read_run(spark: SparkSession, plan: MergePlan, run: StoredRun) -> DataFrame:
    """The state rows of a run under ``plan``, whose state must mean the same as that of the run's own plan, in columns
    of the same types.
    """
    # Without the option Spark would read the folders of partitions as a column.
    reader = spark.read.schema(state_schema(plan)).option("recursiveFileLookup", "true")
    return reader.parquet(*(file.uri for file in run.files))


def combined_runs(
    spark: SparkSession,
    plan: MergePlan,
    runs: Sequence[StoredRun],
    arranged: Arranged,
    *,
    oldest: bool = False,
    in_one_task: bool = False,
) -> DataFrame:
    """The state rows of neighbouring runs, oldest first, as state rows of ``plan``.

    ``app.core.plan.evolution.combined_runs`` says how runs of several schemas follow each other.
    ``arranged`` is applied to whatever is combined; ``oldest``: nothing older lies below the first run;
    ``in_one_task``: what ``arranged`` gives is one partition, and so is the result, without a shuffle between.
    """
    steps = _RunSteps(spark, arranged, oldest, in_one_task)
    return evolution.combined_runs(plan, [(run.plan, run) for run in runs], steps)


@dataclass(frozen=True)
class _RunSteps(evolution.RunSteps[StoredRun, DataFrame]):
    """The steps over relations of state rows (``app.core.plan.evolution.RunSteps``)."""

    spark: SparkSession
    arranged: Arranged
    oldest: bool
    in_one_task: bool

    def read(self, written: MergePlan, run: StoredRun, plan: MergePlan) -> DataFrame:
        if evolution.same_types(written.schema, plan.schema):
            return self.arranged(read_run(self.spark, plan, run), run)
        return converted(written, plan, self.arranged(read_run(self.spark, written, run), run))

    def combined(self, plan: MergePlan, rows: Sequence[DataFrame]) -> DataFrame:
        if self.in_one_task and len(rows) > 1 and combines_at_once(plan):
            return combined_at_once(plan, rows, oldest=self.oldest)
        return _chained(plan, rows, oldest=self.oldest, in_one_task=self.in_one_task)

    def carried_over(self, old: MergePlan, new: MergePlan, rows: DataFrame) -> DataFrame:
        return self.arranged(carried_over(old, new, rows), None)


def _chained(plan: MergePlan, frames: Sequence[DataFrame], *, oldest: bool, in_one_task: bool) -> DataFrame:
    """The frames combined, newest first: the small young runs are joined together before they meet the large old
    one, and what they come to is folded once.
    """
    rows = frames[-1]
    for place, older in reversed(list(enumerate(frames[:-1]))):
        rows = combined(plan, older, rows, oldest=oldest and place == 0, settled=place == 0)
        if in_one_task:  # said again, because Spark forgets it at a full outer join, and would shuffle for the next one
            rows = rows.coalesce(1)
    return rows
