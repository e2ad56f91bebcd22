"""How state rows are laid out in files: partitions, disjoint token ranges, sorted by token then key (design §5)."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.connect import functions as F  # noqa: N812  # the name that PySpark's own documentation uses

from app.core.jobs import FileLayout
from app.core.merge_plan import MergePlan
from app.core.records import PARTITION_COLUMN, TOKEN_COLUMN
from app.core.types import quote
from spark_jobs.expressions import key_names

ROWS_PER_RANGE = 1_000_000  # what one task sorts in memory with ease


def range_count(layout: FileLayout) -> int:
    """The power of two of token ranges that keeps files near their target size and tasks small; it follows the table as
    it grows.
    """
    ranges = 1
    while ranges * ROWS_PER_RANGE < layout.rows or ranges * layout.target_file_bytes < layout.size_bytes:
        ranges *= 2
    return ranges


def spread(rows: DataFrame, ranges: int) -> DataFrame:
    """``rows`` cut into ``ranges`` (a power of two) partitions of disjoint, ascending token ranges."""
    if ranges == 1:
        return rows.coalesce(1)
    bits = ranges.bit_length() - 1
    return rows.repartitionById(ranges, F.expr(f"CAST(shiftright({TOKEN_COLUMN}, {64 - bits}) + {ranges // 2} AS INT)"))


def write_rows(plan: MergePlan, rows: DataFrame, output: str) -> None:
    """Write ``rows`` below the URI ``output``: a folder for each partition of the table, sorted files in each."""
    keys = key_names(plan)
    if plan.schema.partition_keys:
        values = ", ".join(quote(name) for name in plan.schema.partition_keys)
        rows = rows.withColumn(PARTITION_COLUMN, F.expr(f"lower(hex(xxhash64({values})))"))
        keys = [PARTITION_COLUMN, *keys]
    ordered = rows.sortWithinPartitions(*(F.col(quote(name)).asc_nulls_first() for name in keys))
    writer = ordered.write.mode("overwrite")
    (writer.partitionBy(PARTITION_COLUMN) if plan.schema.partition_keys else writer).parquet(output)
