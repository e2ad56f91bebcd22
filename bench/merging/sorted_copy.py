"""What a merge costs without its fold: records read, sorted by token and written.

Spark's workers do not have this module: its functions travel by value.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.connect.session import SparkSession

from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.records import TOKEN_COLUMN
from app.files.layout import Warehouse, data_file
from app.kernel.records import record_pieces
from app.kernel.tasks import Job, Result, Task, from_text
from app.kernel.write import Output, sync_files
from spark_jobs.parcels import PARCEL_COLUMNS, parcels_of


def copy_records(warehouse: Warehouse, task: Task) -> Result:
    """Read a merge's records, sort them by token, write them as a run, and make that durable."""
    # Without rules a run has neither hidden columns nor ranges of totals.
    output, names = Output(warehouse, task, replace(compile_plan(task.schema), rules=())), [*task.schema.by_name]
    for piece in record_pieces(warehouse, task):
        rows = piece.rows.select(names).add_column(0, TOKEN_COLUMN, pa.array(piece.tokens))
        output.add(rows.take(pa.array(np.argsort(piece.tokens, kind="stable"))))
    files, _ = output.close()
    sync_files(warehouse, [data_file(task.table_id, task.output, file.file.name) for file in files])
    return Result(files)


def copied_here(job: Job) -> list[Result]:
    """Copy the records of a job's merges in this process."""
    return [copy_records(Warehouse(job.warehouse), task) for task in job.tasks]


def copied_on_spark(spark: SparkSession, job: Job) -> list[Result]:
    """Copy the records of a job's merges in tasks of Spark."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # it has no types
    rows = [(parcel,) for parcel in parcels_of(job)]
    spark.createDataFrame(rows, PARCEL_COLUMNS).mapInArrow(_copy_parcels, "copied int").collect()
    return []


def _copy_parcels(parcels: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in parcels:
        for parcel in batch.column(0).to_pylist():
            said = json.loads(parcel)
            tasks = [from_text(Task, text) for text in said["tasks"].values()]
            for task in tasks:
                copy_records(Warehouse(said["warehouse"]), replace(task, place=uuid.uuid4().int % 10**5))
            yield pa.record_batch([pa.array([len(tasks)], pa.int32())], names=["copied"])
