"""The overflow job: looks for a key whose total leaves its column's type (merge-semantics A.7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql.connect import functions as F  # noqa: N812  # the name that PySpark's own documentation uses
from pyspark.sql.connect.session import SparkSession

from app.core.plan.jobs import OverflowJob
from app.core.rules.spark_sql import quote
from app.core.table.records import TOKEN_COLUMN
from spark_jobs.bitmaps import register_bitmaps
from spark_jobs.stored_runs import combined_runs, read_run


def find_overflow(spark: SparkSession, job: OverflowJob) -> Mapping[str, Any] | None:
    """The state row, over all runs, of a key of the newest one with a total outside its column's range; None if there
    is none.
    """
    plan, runs = job.plan, job.runs
    if plan.needs_bitmaps:
        register_bitmaps(spark)
    touched = read_run(spark, plan, runs[-1]).select(TOKEN_COLUMN)
    rows = combined_runs(spark, plan, runs, lambda rows, _: rows.join(touched, TOKEN_COLUMN, "left_semi"))
    outside = " OR ".join(f"{quote(bounds.carry)} IS NOT NULL" for bounds in plan.totals)
    found = rows.where(F.expr(outside)).limit(1).collect()
    return found[0].asDict() if found else None
