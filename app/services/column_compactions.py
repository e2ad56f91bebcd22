"""Compactions that are done here, in the worker, by whole columns (docs/decisions/0045)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Final

from app.core.plan.jobs import CompactionJob, FileSizes
from app.core.plan.unknown_states import combines_by_form
from app.core.table.history import Run
from app.services.leases import Lease
from app.services.small_compactions import compacts_here, is_small
from app.services.small_merges import tried_here
from app.storage.combined_columns import ColumnSteps
from app.storage.combined_runs import write_combined_run
from app.storage.run_files import sync_runs

MOST_RUNS: Final = 32  # of a partition, that are read side by side; of each a row group is in memory
_one_at_a_time = threading.Lock()  # for their memory


def combine_here(
    lease: Lease, job: CompactionJob, picked: Sequence[Sequence[Run]], folder: str
) -> tuple[Run, ...] | None:
    """Do a compaction without Spark: combine the neighbouring runs of each partition in ``picked`` and write what
    ``job`` says into ``folder``. The runs are durable. None where it was not done: that is for Spark, which begins the
    folder anew.

    Raises ``Cancelled``, and ``Unavailable`` when the warehouse is not there any more.
    """
    site, schema_id = lease.site, lease.claimed.table.schema_id
    present = all(run.schema_id == schema_id for runs in picked for run in runs)  # others are read by Spark
    if site.small_merge_records == 0 or not present or not compacts_here(job.plan):
        return None
    combine = partial(_combined, lease, job, picked, folder)
    if is_small(job):
        return tried_here(lease, combine)
    large = job.sizes.size_bytes > site.column_compaction_bytes or any(len(runs) > MOST_RUNS for runs in picked)
    if large or not combines_by_form(job.plan):
        return None
    with lease.alone(_one_at_a_time):
        return tried_here(lease, combine)


def _combined(lease: Lease, job: CompactionJob, picked: Sequence[Sequence[Run]], folder: str) -> tuple[Run, ...]:
    table, warehouse, made, read = lease.claimed.table, lease.site.warehouse, [], 0
    steps = ColumnSteps.of_compaction(job.plan, job.now, oldest=job.oldest)

    def go_on(rows: int) -> None:
        nonlocal read
        lease.check()
        read += rows
        lease.report(read / max(1, job.sizes.rows), {})

    for place, runs in enumerate(picked):
        run_id = folder if runs[0].partition is None else f"{folder}.{place:x}"
        rows, size = sum(run.rows for run in runs), sum(run.size_bytes for run in runs)
        sizes = FileSizes(rows, size, job.sizes.target_file_bytes)
        files = write_combined_run(warehouse, table.id, run_id, steps, runs, sizes, go_on)
        if files:
            live = sum(file.live_rows for file in files)
            made.append(Run(run_id, table.schema_id, tuple(f.file for f in files), runs[0].partition, live_rows=live))
    sync_runs(warehouse, [(table.id, run) for run in made])
    return tuple(made)
