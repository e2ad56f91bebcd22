"""What it costs that records tell which columns they name: the same batch in tables with and without the option."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from app.core.plan.jobs import CompactionJob, FileSizes, MergeJob
from app.core.table.history import Batch, Table
from app.services.lookups import find
from app.services.views import View
from app.storage.images import Images
from app.storage.images.builder import Builder
from app.storage.layout import data_file
from bench.compaction import TARGET_FILE_BYTES
from bench.figures import Figure, Ratio, interleaved, seconds
from bench.site import NO_COMPACTION, BenchSite
from bench.sizes import Sizes
from bench.wide_table import GROUPS, KEY, PLAIN, batch_records
from spark_jobs.compact import run_compaction
from spark_jobs.merge import run_merge

TABLE_ROWS = 1_000_000  # whose keys are half of the batch's; the jobs read none of its files
TARGET = 1.15
LOOKUPS = 500
ONE, BOTH = f"{LOOKUPS} lookups of keys in one run", f"{LOOKUPS} of keys in both runs"
MEASURED = ("merge", "merge of repeated keys", "compaction", ONE, BOTH)
PRODUCERS = (*((field, *names) for field, names in GROUPS.items()), PLAIN)
MEANINGS: Mapping[str, Mapping[str, str]] = {
    "null": NO_COMPACTION,
    "unchanged": {**NO_COMPACTION, "record.absent-columns": "unchanged"},
}


def measure_absent_columns(site: BenchSite, sizes: Sizes) -> Figure:
    """Seconds of the merge job and of the compaction of two runs, for both meanings in turns."""
    merges: dict[str, MergeJob] = {}
    compactions: dict[str, CompactionJob] = {}
    staged: dict[str, int] = {}
    lookups: dict[str, Callable[[], float]] = {}
    for meaning, options in MEANINGS.items():
        table = site.create_table(f"absent_{meaning}", options)
        first = _stage(site, table, 1, sizes)
        staged[meaning] = first.size_bytes
        merges[meaning] = _merge_job(site, table, first, sizes.records)
        site.merge(table)
        _stage(site, table, 2, sizes)
        site.merge(table)
        compactions[meaning] = _compaction_job(site, table)
        lookups |= {f"{kind}, {meaning}": act for kind, act in _lookups(site, table).items()}
    told = [
        (kind, name, replace(job, distinct_keys=distinct))
        for kind, distinct in (("merge", True), ("merge of repeated keys", False))
        for name, job in merges.items()
    ]
    with site.session() as spark:
        steps: dict[str, Callable[[], float]] = {
            **{f"{kind}, {name}": partial(seconds, partial(run_merge, spark, job)) for kind, name, job in told},
            **{f"compaction, {n}": partial(seconds, partial(run_compaction, spark, j)) for n, j in compactions.items()},
            **lookups,
        }
        timings = interleaved(steps, sizes.rounds, warm_ups=4)
    added = (staged["unchanged"] - staged["null"]) / sizes.records
    return Figure(
        "Absent columns",
        f"The merge job on one staged batch of {sizes.records:,} records, in which no key comes twice, the same batch "
        "aggregated, as if one did, and the compaction of two runs of such, in a "
        "table with `record.absent-columns` = `null` and in one with `unchanged`. Three producers take turns: the "
        "columns of one group, those of the other, those of none; six in ten of what they name is null. "
        "Lookups are without HTTP, CPU seconds, with images. "
        f"Staging files are {added:+.1f} bytes a record larger.",
        timings,
        [Ratio(f"{job}, unchanged", f"{job}, null", TARGET) for job in MEASURED],
    )


def _stage(site: BenchSite, table: Table, number: int, sizes: Sizes) -> Batch:
    """A batch of records of which each names the columns of one producer, and is null elsewhere."""
    records = batch_records(number, sizes.rows(TABLE_ROWS), sizes.records)
    turns = np.arange(len(records)) % len(PRODUCERS)
    for turn, names in enumerate(PRODUCERS):
        for name in names:
            place = records.column_names.index(name)
            others = pa.nulls(len(records), records[name].type)
            records = records.set_column(place, name, pc.if_else(pa.array(turns == turn), records[name], others))
    return site.stage(table, records, [(KEY, *PRODUCERS[turn]) for turn in turns.tolist()])


def _lookups(site: BenchSite, table: Table) -> Mapping[str, Callable[[], float]]:
    """CPU seconds of some lookups, of keys that one of two runs has and of keys that both have."""
    snapshot, plan, warehouse = site.snapshot(table), site.plan(table), site.merges.warehouse
    images = Images(site.folder / f"images_{table.name}", warehouse)
    images.asking.builds = False
    builder = Builder(images.folder, warehouse, 2**40)
    keys = []
    for run in snapshot.runs:
        images.want(table.id, run, table.schema, plan)
        _made(builder)
        images.find(table.id, run, run.files[0].min_token, (KEY,), (-1,))  # state rows are made once they are missed
        _made(builder)
        paths = [warehouse.path(*data_file(table.id, run.id, file.name)) for file in run.files]
        keys.append({key for path in paths for key in pq.read_table(path, columns=[KEY])[KEY].to_pylist()})
    view = View(table, plan, snapshot, {table.schema_id: table.schema})

    def look_up(asked: Sequence[int]) -> float:
        began = time.process_time()
        for key in asked:
            find(view, images, (key,), view.columns)
        return time.process_time() - began

    first, second = keys
    drawn = {ONE: sorted(first - second)[:LOOKUPS], BOTH: sorted(first & second)[:LOOKUPS]}
    return {name: partial(look_up, of) for name, of in drawn.items()}


def _made(builder: Builder) -> None:
    while builder.work():
        pass


def _merge_job(site: BenchSite, table: Table, batch: Batch, records: int) -> MergeJob:
    file_sizes = FileSizes(records, batch.size_bytes, TARGET_FILE_BYTES)
    return MergeJob(
        site.plan(table), {site.staged_uri(table, batch): 1}, file_sizes, str(site.folder / f"merged_{table.name}"), 0
    )


def _compaction_job(site: BenchSite, table: Table) -> CompactionJob:
    snapshot = site.snapshot(table)
    runs = tuple(site.stored(table, run) for run in snapshot.runs)
    file_sizes = FileSizes(snapshot.stored_rows, snapshot.size_bytes, TARGET_FILE_BYTES)
    output = str(site.folder / f"compacted_{table.name}")
    return CompactionJob(site.plan(table), runs, file_sizes, output, 0, oldest=True)
