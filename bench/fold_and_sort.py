"""What the fold costs beyond a sort: the merge job beside the same batch read, sorted and written by Spark."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql.connect import functions as F  # noqa: N812  # the name that PySpark's own documentation uses
from pyspark.sql.connect.session import SparkSession

from app.core.plan.jobs import FileSizes, MergeJob
from app.core.rules.spark_sql import quote
from app.core.table.history import Batch
from app.core.table.records import TOKEN_COLUMN
from app.storage.distinct_keys import keys_are_distinct
from app.storage.lifted_runs import write_lifted_runs
from bench.compaction import TARGET_FILE_BYTES
from bench.figures import Figure, Ratio, interleaved, seconds
from bench.site import BenchSite
from bench.sizes import Sizes
from bench.wide_table import batch_records
from spark_jobs.expressions import key_names, record_schema, records
from spark_jobs.merge import run_merge
from spark_jobs.token_ranges import ROW_GROUP_BYTES, spread

TABLE_ROWS = 1_000_000  # whose keys are half of the batch's; the jobs read none of its files
TARGET = 1.3
_BYTES_A_RECORD = 1000  # in memory, more than any


def measure_fold(site: BenchSite, sizes: Sizes) -> Figure:
    """Seconds of the merge job and of the sort, in turns."""
    table = site.create_table("folded")
    batch = site.stage(table, batch_records(1, sizes.rows(TABLE_ROWS), sizes.records))
    file_sizes = FileSizes(sizes.records, batch.size_bytes, TARGET_FILE_BYTES)
    output = str(site.folder / "folded")
    job = MergeJob(site.plan(table), {site.staged_uri(table, batch): 1}, file_sizes, output, 0)

    def merge(spark: SparkSession) -> None:
        """Compare the keys as the service does, and merge."""
        distinct = keys_are_distinct(site.merges.warehouse, [batch], table.schema)
        assert distinct, "no key comes twice in a batch of the benchmark"
        run_merge(spark, replace(job, distinct_keys=distinct))

    halves = [site.stage(table, batch_records(1, sizes.rows(TABLE_ROWS), sizes.records // 2)) for _ in range(2)]
    twice = replace(job, batches={site.staged_uri(table, half): half.number for half in halves})

    def merge_here(batches: Sequence[Batch]) -> None:
        """As the worker merges what is not too large, without Spark."""
        here, most = uuid.uuid4().hex, sizes.records * _BYTES_A_RECORD
        write_lifted_runs(site.merges.warehouse, table.id, here, job.plan, batches, 0, most, lambda: None)

    with site.session() as spark:
        steps = {
            "merge in the worker": lambda: seconds(lambda: merge_here([batch])),
            "merge in the worker, each key twice": lambda: seconds(lambda: merge_here(halves)),
            "merge job": lambda: seconds(lambda: merge(spark)),
            "merge job, aggregated": lambda: seconds(lambda: run_merge(spark, job)),
            "merge job, each key twice": lambda: seconds(lambda: run_merge(spark, twice)),
            "sort": lambda: seconds(lambda: _sort(spark, job)),
        }
        timings = interleaved(steps, sizes.rounds, warm_ups=4)
    return Figure(
        "Fold and sort",
        f"The merge job alone on one staged batch of {sizes.records:,} records, keys compared before as the service "
        "does it: no key comes twice. The same batch aggregated, as if one did. And beside them a job that reads the "
        "same file, computes tokens, sorts by token and key and writes the columns with the same settings, folding "
        "nothing. The same batch merged by the worker, without Spark; and half of its records, each of them twice, "
        "merged by both.",
        timings,
        [Ratio(of, "sort", TARGET) for of in steps if of != "sort"],
    )


def _sort(spark: SparkSession, job: MergeJob) -> None:
    staged = spark.read.schema(record_schema(job.plan.schema)).parquet(*job.batches)
    numbered = records(job.plan, staged, {uri.rsplit("/", 1)[-1]: number for uri, number in job.batches.items()})
    columns = [TOKEN_COLUMN, *(column.name for column in job.plan.schema.columns)]
    rows = spread(numbered.select(*(F.col(quote(name)) for name in columns)), job.sizes.ranges)
    ordered = rows.sortWithinPartitions(*key_names(job.plan))
    ordered.write.mode("overwrite").option("parquet.block.size", ROW_GROUP_BYTES).parquet(job.output)
