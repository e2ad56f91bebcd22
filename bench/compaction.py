"""What a full compaction costs beyond a copy: two runs combined, by the worker and by Spark, beside the same rows read
and written by each.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.connect.session import SparkSession

from app.core.plan.jobs import CompactionJob, FileSizes
from app.core.table.history import Run, Table
from app.core.table.option_entries import TABLE_OPTIONS
from app.storage.ahead import ahead
from app.storage.combined_columns import ColumnSteps
from app.storage.combined_runs import WINDOW_BYTES, write_combined_run
from app.storage.run_files import MANY_ROWS, row_groups, run_schema, write_run_file
from app.storage.scans.reading import TokenRange, batches_of
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
    """Seconds of the compaction by the worker and by Spark, and of copies, in turns."""
    table = two_runs(site, sizes)
    job = full_compaction(site, table)
    with site.session() as spark:
        steps: dict[str, Callable[[], float]] = {
            "compaction in the worker": lambda: seconds(lambda: combine_here(site, table, job)),
            "copy in the worker": lambda: seconds(lambda: copy_here(site, table, job)),
            "compaction": lambda: seconds(lambda: run_compaction(spark, job)),
            "copy": lambda: seconds(lambda: _write(_both(spark, job), job)),
            "copy, sorted by token ranges": lambda: seconds(lambda: _write(_sorted(_both(spark, job), job), job)),
        }
        timings = interleaved(steps, sizes.rounds, warm_ups=2)
    return Figure(
        "Full compaction",
        f"A run of {sizes.rows(TABLE_ROWS):,} rows and one of {sizes.records:,} (half of them new keys) combined into "
        "one, by the worker and by Spark, and beside each the same rows read and written unmerged: by Arrow as they "
        "come, by Spark as they come, and by Spark sorted by token in disjoint ranges as a run must be. Same columns, "
        "same settings.",
        timings,
        [
            Ratio("compaction in the worker", "copy in the worker", TARGET),
            Ratio("compaction in the worker", "copy", TARGET),
            Ratio("compaction", "copy", TARGET),
            Ratio("compaction", "copy, sorted by token ranges"),
        ],
    )


def two_runs(site: BenchSite, sizes: Sizes) -> Table:
    """A table of a large run and a small one."""
    rows = sizes.rows(TABLE_ROWS)
    table = site.create_table("compacted")
    site.load(table, rows)
    site.stage(table, batch_records(1, rows, sizes.records))
    site.merge(table)
    return table


def full_compaction(site: BenchSite, table: Table) -> CompactionJob:
    """The full compaction of a table."""
    snapshot = site.snapshot(table)
    runs = tuple(site.stored(table, run) for run in snapshot.runs)
    file_sizes = FileSizes(snapshot.stored_rows, snapshot.size_bytes, TARGET_FILE_BYTES)
    return CompactionJob(site.plan(table), runs, file_sizes, str(site.folder / "compacted"), 0, oldest=True)


def combine_here(site: BenchSite, table: Table, job: CompactionJob) -> None:
    """The compaction as the worker does it, by whole columns, without a commit."""
    runs, folder = site.snapshot(table).runs, uuid.uuid4().hex
    warehouse = site.merges.warehouse
    steps = ColumnSteps.of_compaction(job.plan, job.now, oldest=job.oldest)
    write_combined_run(warehouse, table.id, folder, steps, runs, job.sizes, lambda _: None)


def copy_here(site: BenchSite, table: Table, job: CompactionJob) -> None:
    """The rows of all runs read and written by the worker, one run after the other, in as many threads."""
    folder, schema = uuid.uuid4().hex, run_schema(job.plan)

    def pieces(run: Run) -> Iterator[pa.Table]:
        every = batches_of(site.merges.warehouse, table.id, run, TokenRange(), most_bytes=WINDOW_BYTES)
        return row_groups(pa.Table.from_batches([batch]).select(schema.names).cast(schema) for batch in ahead(every))

    for place, run in enumerate(site.snapshot(table).runs):
        write_run_file(site.merges.warehouse, table.id, folder, job.plan, pieces(run), MANY_ROWS, place)


def _both(spark: SparkSession, job: CompactionJob) -> DataFrame:
    old, new = (
        spark.read.schema(state_schema(job.plan)).parquet(*(file.uri for file in run.files)) for run in job.runs
    )
    return old.unionAll(new)


def _sorted(rows: DataFrame, job: CompactionJob) -> DataFrame:
    return spread(rows, job.sizes.ranges).sortWithinPartitions(*key_names(job.plan))


def _write(rows: DataFrame, job: CompactionJob) -> None:
    rows.write.mode("overwrite").option("parquet.block.size", ROW_GROUP_BYTES).parquet(job.output)
