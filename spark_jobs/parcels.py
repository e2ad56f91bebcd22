"""The code that Spark's Python workers run: parcels of tasks. It imports the kernel and no Spark."""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa

from app.files.layout import Warehouse
from app.files.memory import give_memory_back
from app.kernel.run import run_tasks
from app.kernel.tasks import Job, Task, from_text, to_text

PARCEL_COLUMNS: Final = "parcel string"
RESULT_COLUMNS: Final = "place int, result string"
# One worker takes small tasks with inputs of about this size together.
PARCEL_BYTES: Final = 16 * 2**20
LEAST_PARCELS: Final = 4  # so that many small tasks use several cores
_RESULTS: Final = pa.schema([("place", pa.int32()), ("result", pa.string())])


def parcels_of(job: Job) -> list[str]:
    """Return the tasks of a job in parcels, each one row of the job's relation; empty ones where there is no task."""
    if not job.tasks:
        return [_parcel(job, ())] * LEAST_PARCELS
    most_tasks = -(-len(job.tasks) // LEAST_PARCELS)
    groups: list[list[int]] = []
    filled = 0
    for place, task in enumerate(job.tasks):
        if not groups or filled + task.size_bytes > PARCEL_BYTES or len(groups[-1]) >= most_tasks:
            groups.append([])
            filled = 0
        groups[-1].append(place)
        filled += task.size_bytes
    return [_parcel(job, places) for places in groups]


def _parcel(job: Job, places: Sequence[int]) -> str:
    return json.dumps({"warehouse": job.warehouse, "tasks": {place: to_text(job.tasks[place]) for place in places}})


def run_parcels(parcels: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the tasks of each parcel; return a row for each task: its index in the job, and its result."""
    _keep_temporary_files_with_sparks()
    for batch in parcels:
        for parcel in batch.column(0).to_pylist():
            job = json.loads(parcel)
            places = [int(place) for place in job["tasks"]]
            tasks = [from_text(Task, text) for text in job["tasks"].values()]
            results = [to_text(result) for result in run_tasks(_warehouse(job["warehouse"]), tasks)]
            give_memory_back()
            yield pa.record_batch([pa.array(places, pa.int32()), pa.array(results)], schema=_RESULTS)


def _keep_temporary_files_with_sparks() -> None:
    """Place the records that a task sets aside in Spark's folder for local files.

    Spark removes it, even if this process is killed. ``/tmp`` would keep the rows, and is often memory.
    """
    folders = [folder for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if os.path.isdir(folder)]
    tempfile.tempdir = random.choice(folders) if folders else None  # to fill all disks alike


@lru_cache(maxsize=8)
def _warehouse(address: str) -> Warehouse:
    """Return the warehouse at an address, whose connections to a store are kept."""
    return Warehouse(address)
