"""Runs as one relation: state rows of several runs combined, whatever schemas they were written under."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql.connect.session import SparkSession

from app.core.plan.evolution import same_fold, same_types
from app.core.plan.jobs import StoredRun
from app.core.plan.merge_plan import MergePlan
from spark_jobs.expressions import carried_over, combined, converted, state_schema

Arranged = Callable[[DataFrame], DataFrame]


def read_run(spark: SparkSession, plan: MergePlan, run: StoredRun) -> DataFrame:
    """The state rows of a run under ``plan``, whose state must mean the same as that of the run's own plan, in columns
    of the same types.
    """
    # Without the option Spark would read the folders of partitions as a column.
    reader = spark.read.schema(state_schema(plan)).option("recursiveFileLookup", "true")
    return reader.parquet(*(file.uri for file in run.files))


def combined_runs(
    spark: SparkSession, plan: MergePlan, runs: Sequence[StoredRun], arranged: Arranged, *, oldest: bool = False
) -> DataFrame:
    """The state rows of neighbouring runs, oldest first, as state rows of ``plan``.

    Rows of a plan that meant something else enter the next plan as its first records (``app.core.plan.evolution``).
    ``arranged`` is applied to whatever is combined; ``oldest``: nothing older lies below the first run.
    """
    carried: list[DataFrame] = []
    previous = plan
    for written, neighbours in _epochs(plan, runs):
        entered = [arranged(carried_over(previous, written, rows)) for rows in carried]
        frames = [_read_as(spark, written, run, arranged) for run in neighbours]
        carried, previous = [_chained(written, [*entered, *frames], oldest=oldest)], written
    if previous is not plan:
        return arranged(carried_over(previous, plan, carried[0]))
    return carried[0]


def _read_as(spark: SparkSession, plan: MergePlan, run: StoredRun, arranged: Arranged) -> DataFrame:
    """The state rows of a run as state rows of ``plan``, which means the same but may have wider columns."""
    if same_types(run.plan.schema, plan.schema):
        return arranged(read_run(spark, plan, run))
    return converted(run.plan, plan, arranged(read_run(spark, run.plan, run)))


def _epochs(plan: MergePlan, runs: Sequence[StoredRun]) -> list[tuple[MergePlan, list[StoredRun]]]:
    """Neighbouring runs whose state means the same, each with the plan that reads them (columns are found by id)."""
    epochs: list[tuple[MergePlan, list[StoredRun]]] = []
    for run in runs:
        reading = plan if same_fold(run.plan.schema, plan.schema) else run.plan
        if epochs and same_fold(epochs[-1][0].schema, reading.schema):
            epochs[-1] = (reading, [*epochs[-1][1], run])
        else:
            epochs.append((reading, [run]))
    return epochs


def _chained(plan: MergePlan, frames: list[DataFrame], *, oldest: bool) -> DataFrame:
    """The frames combined, newest first: the small young runs are joined together before they meet the large old
    one.
    """
    rows = frames[-1]
    for place, older in reversed(list(enumerate(frames[:-1]))):
        rows = combined(plan, older, rows, oldest=oldest and place == 0)
    return rows
