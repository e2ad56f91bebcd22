"""The changes of rows that runs bring: before and after of every key that they hold (merge-semantics §8.3, §8.4)."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql.connect import functions as F  # noqa: N812  # the name that PySpark's own documentation uses
from pyspark.sql.connect.session import SparkSession

from app.core.plan.evolution import same_fold
from app.core.plan.jobs import ChangesJob, StoredRun
from app.core.plan.merge_plan import MergePlan
from app.core.rules.spark_sql import comparable, literal, member, quote, ref
from app.core.table.records import KIND_COLUMN, TOKEN_COLUMN, RowKind
from spark_jobs.bitmaps import register_bitmaps
from spark_jobs.expressions import FIELD_ID, combined, equals, key_names, without_substitution
from spark_jobs.stored_runs import combined_runs, read_run
from spark_jobs.token_ranges import TokenRange, write_in_ranges

_BEFORE, _AFTER, _CHANGE = "_kf_before", "_kf_after", "_kf_change"


def write_changes(spark: SparkSession, job: ChangesJob) -> None:
    """Writes the changes that ``job.newer`` runs bring on top of ``job.older`` ones: the row kind and the visible
    columns, sorted by token and key, -U before +U.
    """
    if job.plan.needs_bitmaps:
        register_bitmaps(spark)
    order = [F.col(quote(name)).asc_nulls_first() for name in (*key_names(job.plan), KIND_COLUMN)]
    write_in_ranges(
        spark,
        job.sizes.ranges,
        lambda one: _changes_in(spark, job, one),
        lambda rows, mode: without_substitution(rows).sortWithinPartitions(*order).write.mode(mode).parquet(job.output),
    )


def _changes_in(spark: SparkSession, job: ChangesJob, one: TokenRange) -> DataFrame | None:
    """The changes of the keys in one range of tokens; None where there is no file."""
    older, newer = one.parts(job.older), one.parts(job.newer)
    if not newer:
        return None
    after = combined_runs(spark, job.plan, newer, one.of, oldest=not job.older, in_one_task=True)
    if not older:
        return _changes(job, None, after)
    tokens = (read_run(spark, run.plan, run).select(TOKEN_COLUMN) for run in newer)
    touched = one.of(reduce(DataFrame.union, tokens))  # one task, so that the rows of the range stay in one file

    def touching(rows: DataFrame, run: StoredRun | None) -> DataFrame:
        return one.of(rows, run).join(touched, TOKEN_COLUMN, "left_semi")

    before = combined_runs(spark, job.plan, older, touching, oldest=True, in_one_task=True)
    if not all(same_fold(run.plan.schema, job.plan.schema) for run in newer):
        # What newer runs of another meaning show depends on the older ones, so they enter the plan together.
        after = combined_runs(spark, job.plan, [*older, *newer], touching, oldest=True, in_one_task=True)
        return _changes(job, before, after)
    return _changes(job, before, combined(job.plan, before, after, oldest=True).coalesce(1))


def _changes(job: ChangesJob, before: DataFrame | None, after: DataFrame) -> DataFrame:
    """A row for each change; the columns keep the ids that the files carry."""
    joined = _joined(job.plan, before, _shown(job.plan, after))
    different = f"NOT ({_equal_sql(job)})" if job.row_deduplicate else "TRUE"
    both = f"{_BEFORE} IS NOT NULL AND {_AFTER} IS NOT NULL AND {different}"
    cases = {
        RowKind.INSERT: (f"{_BEFORE} IS NULL AND {_AFTER} IS NOT NULL", _AFTER),
        RowKind.UPDATE_BEFORE: (both, _BEFORE),
        RowKind.UPDATE_AFTER: (both, _AFTER),
        RowKind.DELETE: (f"{_BEFORE} IS NOT NULL AND {_AFTER} IS NULL", _BEFORE),
    }
    entries = [
        f"IF({when}, named_struct('kind', {int(kind)}Y, 'row', {row}), NULL)" for kind, (when, row) in cases.items()
    ]
    exploded = F.expr(f"explode(filter(array({', '.join(entries)}), e -> e IS NOT NULL))").alias(_CHANGE)
    keys = [F.col(quote(name)) for name in key_names(job.plan)]
    return joined.select(*keys, exploded).select(
        F.col(TOKEN_COLUMN), F.expr(f"{_CHANGE}.kind").alias(KIND_COLUMN), *_visible(job.plan)
    )


def _visible(plan: MergePlan) -> list[Column]:
    keys = set(plan.schema.primary_key)
    return [
        F.expr(quote(column.name) if column.name in keys else f"{_CHANGE}.row.{quote(column.name)}").alias(
            column.name, metadata={FIELD_ID: column.id}
        )
        for column in plan.schema.columns
    ]


def _shown(plan: MergePlan, rows: DataFrame) -> DataFrame:
    """Keys, and the visible columns as one struct that is null where the row is not there."""
    members = ["'_kf_there', TRUE"]  # a struct is not empty where all columns are keys
    members += [f"{literal(column.name)}, {quote(column.name)}" for column in plan.schema.value_columns]
    row = f"named_struct({', '.join(members)})"
    keys = [F.col(quote(name)) for name in key_names(plan)]
    return rows.select(*keys, F.expr(f"IF({plan.row.live_sql}, {row}, NULL)").alias(_AFTER))


def _joined(plan: MergePlan, before: DataFrame | None, after: DataFrame) -> DataFrame:
    """Both structs of every key of ``after``."""
    keys = key_names(plan)
    if before is None:
        nothing = F.expr(f"IF(TRUE, NULL, {_AFTER})").alias(_BEFORE)
        return after.select(*(F.col(quote(name)) for name in keys), nothing, F.col(_AFTER))
    matches = " AND ".join(f"{ref('a', name)} {equals(plan, name)} {ref('b', name)}" for name in keys)
    joined = after.alias("a").join(_shown(plan, before).alias("b"), F.expr(matches), "left")
    shown = [F.expr(ref("a", name)).alias(name) for name in keys]
    return joined.select(*shown, F.expr(f"b.{_AFTER}").alias(_BEFORE), F.expr(f"a.{_AFTER}").alias(_AFTER))


def _equal_sql(job: ChangesJob) -> str:
    """Whether the row is the same before and after, null-safe; NaN equals NaN, maps by their entries."""
    compared = [column for column in job.plan.schema.value_columns if column.name not in job.ignored_fields]
    pairs = [
        tuple(comparable(column.type, member(side, column.name)) for side in (_BEFORE, _AFTER)) for column in compared
    ]
    return " AND ".join(f"({before} <=> {after})" for before, after in pairs) or "TRUE"
