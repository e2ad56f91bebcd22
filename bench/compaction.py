"""What a full compaction costs beyond a copy: two runs combined, beside the same rows read and written by Spark."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.connect.session import SparkSession

from app.core.plan.jobs import CompactionJob, FileSizes
from app.core.table.option_entries import TABLE_OPTIONS
from bench.figures import Figure, Ratio, interleaved, seconds
from bench.site import BenchSite
from bench.sizes import Sizes
from bench.wide_table import batch_records
from spark_jobs.compact import run_compaction
from spark_jobs.expressions import key_names, state_schema
from spark_jobs.token_ranges import ROW_GROUP_BYTES, spread

TABLE_ROWS = 1_000_000
TARGET = 1.3
TARGET_FILE_BYTES = TABLE_OPTIONS["target-file-size"].default


def measure_compaction(site: BenchSite, sizes: Sizes) -> Figure:
    """Seconds of the compaction job and of two copies, in turns."""
    job = measured_runs(site, sizes)
    with site.session() as spark:
        steps = {
            "compaction": lambda: seconds(lambda: run_compaction(spark, job)),
            "copy": lambda: seconds(lambda: _write(_both(spark, job), job)),
            "copy, sorted by token ranges": lambda: seconds(lambda: _write(_sorted(_both(spark, job), job), job)),
        }
        timings = interleaved(steps, sizes.rounds, warm_ups=2)
    return Figure(
        "Full compaction",
        f"A run of {sizes.rows(TABLE_ROWS):,} rows and one of {sizes.records:,} (half of them new keys) combined into "
        "one, and beside it the same rows read and written unmerged: as they come, and sorted by token in disjoint "
        "ranges as a run must be. Same columns, same settings.",
        timings,
        [Ratio("compaction", "copy", TARGET), Ratio("compaction", "copy, sorted by token ranges")],
    )


def measured_runs(site: BenchSite, sizes: Sizes) -> CompactionJob:
    """The full compaction of a large run and a small one."""
    rows = sizes.rows(TABLE_ROWS)
    table = site.create_table("compacted")
    site.load(table, rows)
    site.stage(table, batch_records(1, rows, sizes.records))
    site.merge(table)
    snapshot = site.snapshot(table)
    runs = tuple(site.stored(table, run) for run in snapshot.runs)
    file_sizes = FileSizes(snapshot.stored_rows, snapshot.size_bytes, TARGET_FILE_BYTES)
    return CompactionJob(site.plan(table), runs, file_sizes, str(site.folder / "compacted"), 0, oldest=True)


def _both(spark: SparkSession, job: CompactionJob) -> DataFrame:
    old, new = (
        spark.read.schema(state_schema(job.plan)).parquet(*(file.uri for file in run.files)) for run in job.runs
    )
    return old.unionAll(new)


def _sorted(rows: DataFrame, job: CompactionJob) -> DataFrame:
    return spread(rows, job.sizes.ranges).sortWithinPartitions(*key_names(job.plan))


def _write(rows: DataFrame, job: CompactionJob) -> None:
    rows.write.mode("overwrite").option("parquet.block.size", ROW_GROUP_BYTES).parquet(job.output)
