"""State rows in files: partitions, disjoint token ranges, in each sorted by token then key (design §5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql.connect import functions as F  # noqa: N812  # the name that PySpark's own documentation uses
from pyspark.sql.connect.session import SparkSession

from app.core.plan.jobs import StoredFile, StoredRun
from app.core.plan.merge_plan import MergePlan
from app.core.rules.spark_sql import quote
from app.core.table.records import PARTITION_COLUMN, TOKEN_COLUMN
from spark_jobs.expressions import RANGE_COLUMN, key_names, without_substitution

ROW_GROUP_BYTES = 16 * 1024**2  # in memory; a lookup without an image reads one group (docs/decisions/0008)
RANGES_PER_QUERY = 32, 128  # least and most: each is a branch of the plan, which takes time to be planned
_MANY = 1 << 20  # rows: so many that no core is left without
_SMALLEST, _TOKENS = -(1 << 63), 1 << 64


@dataclass(frozen=True)
class TokenRange:
    """One of ``count`` (a power of two) equal ranges of tokens, both ends included."""

    first: int
    last: int

    @classmethod
    def all_of(cls, count: int) -> list[TokenRange]:
        """All ranges, in order."""
        width = _TOKENS // count
        return [cls(_SMALLEST + i * width, _SMALLEST + (i + 1) * width - 1) for i in range(count)]

    def parts(self, runs: Iterable[StoredRun]) -> list[StoredRun]:
        """The runs that have files in the range, with these files only."""
        cut = (replace(run, files=tuple(file for file in run.files if self._overlaps(file))) for run in runs)
        return [run for run in cut if run.files]

    def _overlaps(self, file: StoredFile) -> bool:
        return self.first <= file.max_token and file.min_token <= self.last

    def of(self, rows: DataFrame, run: StoredRun | None = None) -> DataFrame:
        """The rows in the range, in one task. Spark skips row groups and pages that hold none of them; where they are
        those of a ``run`` that has no others, it compares no token at all.
        """
        if run is not None and all(self.first <= file.min_token and file.max_token <= self.last for file in run.files):
            return rows.coalesce(1)
        token = F.col(TOKEN_COLUMN)
        return rows.where((token >= F.lit(self.first)) & (token <= F.lit(self.last))).coalesce(1)


def write_in_ranges(
    spark: SparkSession,
    count: int,
    rows_in: Callable[[TokenRange], DataFrame | None],
    write: Callable[[DataFrame, str], None],
) -> None:
    """Write what ``rows_in`` gives for each of ``count`` token ranges, one task for each; ``write`` also takes Spark's
    mode. One query does as many as keep the cores of ``spark`` at work.
    """
    ranges, mode = TokenRange.all_of(count), "overwrite"
    at_once = count if count <= RANGES_PER_QUERY[0] else ranges_at_once(cores(spark))
    for start in range(0, count, at_once):
        found = [rows for one in ranges[start : start + at_once] if (rows := rows_in(one)) is not None]
        if found:
            write(reduce(DataFrame.unionAll, found), mode)
            mode = "append"


def ranges_at_once(core_count: int) -> int:
    """Ranges of one query on so many cores: as many for each, and two at least, as they do not take equally long; one
    where two are too many.
    """
    least, most = RANGES_PER_QUERY
    wanted = core_count * max(2, -(-least // core_count))
    return wanted if wanted <= most else most // core_count * core_count or most


def cores(spark: SparkSession) -> int:
    """How many tasks Spark wants to run side by side now: the cores of all executors that it has, by its default."""
    number = F.expr("spark_partition_id()").alias("number")
    [last] = spark.range(_MANY).select(number).agg(F.max("number")).collect()
    return int(last[0]) + 1


def spread(rows: DataFrame, ranges: int) -> DataFrame:
    """``rows`` cut into ``ranges`` (a power of two) partitions of disjoint, ascending token ranges.

    Where there are several, ``RANGE_COLUMN`` names the range: whatever groups by it too is not shuffled again.
    """
    if ranges == 1:
        return rows.coalesce(1)
    bits = ranges.bit_length() - 1
    number = F.expr(f"CAST(shiftright({TOKEN_COLUMN}, {64 - bits}) + {ranges // 2} AS INT)")
    return rows.withColumn(RANGE_COLUMN, number).repartitionById(ranges, F.col(RANGE_COLUMN))


def write_rows(plan: MergePlan, rows: DataFrame, output: str, *, mode: str = "overwrite") -> None:
    """Write ``rows`` below the URI ``output``: a folder for each partition of the table, sorted files in each.

    ``mode`` as Spark's writer has it.
    """
    keys = key_names(plan)
    if plan.schema.partition_keys:
        values = ", ".join(quote(name) for name in plan.schema.partition_keys)
        rows = rows.withColumn(PARTITION_COLUMN, F.expr(f"lower(hex(xxhash64({values})))"))
        keys = [PARTITION_COLUMN, *keys]
    ordered = without_substitution(rows).sortWithinPartitions(*(F.col(quote(name)).asc_nulls_first() for name in keys))
    writer = ordered.write.mode(mode).option("parquet.block.size", ROW_GROUP_BYTES)
    (writer.partitionBy(PARTITION_COLUMN) if plan.schema.partition_keys else writer).parquet(output)
