"""The overflow job: looks for a key whose total leaves its column's type (merge-semantics A.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.connect import functions as F  # noqa: N812  # the name that PySpark's own documentation uses
from pyspark.sql.connect.session import SparkSession

from app.core.merge_plan import MergePlan
from app.core.types import quote
from spark_jobs.bitmaps import register_bitmaps
from spark_jobs.expressions import combined, key_names, state_schema


def find_overflow(spark: SparkSession, plan: MergePlan, runs: Sequence[tuple[str, ...]]) -> Mapping[str, Any] | None:
    """The state row over all ``runs`` (file URIs of each, oldest first) of a key of the newest one, with a total
    outside its column's range; None if there is none.
    """
    if plan.needs_bitmaps:
        register_bitmaps(spark)
    schema = state_schema(plan)
    *older, newest = (spark.read.schema(schema).parquet(*files) for files in runs)
    keys = newest.select(*(F.col(quote(name)) for name in key_names(plan)))
    rows: DataFrame = newest
    for frame in reversed(older):
        touched = frame.join(keys, key_names(plan), "left_semi")
        rows = combined(plan, touched, rows)
    outside = " OR ".join(f"{quote(bounds.carry)} IS NOT NULL" for bounds in plan.totals)
    found = rows.where(F.expr(outside)).limit(1).collect()
    return found[0].asDict() if found else None
