"""Compactions of many rows: done here, in the worker, by whole columns (docs/decisions/0045)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Final

from app.core.plan.jobs import CompactionJob, FileSizes
from app.core.plan.unknown_states import combines_by_form
from app.core.table.history import Run
from app.services.leases import Lease
from app.services.small_merges import folds_here, tried_here
from app.storage.combined_runs import write_combined_run
from app.storage.run_files import sync_runs

MOST_RUNS: Final = 200  # of a partition, that are read side by side
_one_at_a_time = threading.Lock()  # for their memory


def combine_here(
    lease: Lease, job: CompactionJob, picked: Sequence[Sequence[Run]], folder: str
) -> tuple[Run, ...] | None:
    """Do a compaction without Spark, by whole columns: combine the neighbouring runs of each partition in ``picked``
    and write what ``job`` says into ``folder``. The runs are durable. None where it was not done: that is for Spark,
    which begins the folder anew.

    Raises ``Cancelled``, and ``Unavailable`` when the warehouse is not there any more.
    """
    if not _can_be_tried(lease, job, picked):
        return None
    with _one_at_a_time:
        lease.check()
        return tried_here(lease, partial(_combined, lease, job, picked, folder))


def _can_be_tried(lease: Lease, job: CompactionJob, picked: Sequence[Sequence[Run]]) -> bool:
    """Runs of an older schema are read by Spark; what one stores of logs and of sketches is not the same there."""
    site, schema_id = lease.site, lease.claimed.table.schema_id
    small = job.sizes.size_bytes <= site.column_compaction_bytes and all(len(runs) <= MOST_RUNS for runs in picked)
    present = all(run.schema_id == schema_id for runs in picked for run in runs)
    alike = folds_here(job.plan) and not job.plan.settles
    return site.small_merge_records > 0 and small and present and alike and combines_by_form(job.plan)


def _combined(lease: Lease, job: CompactionJob, picked: Sequence[Sequence[Run]], folder: str) -> tuple[Run, ...]:
    table, warehouse, made, read = lease.claimed.table, lease.site.warehouse, [], 0

    def go_on(rows: int) -> None:
        nonlocal read
        lease.check()
        read += rows
        lease.report(read / max(1, job.sizes.rows), {})

    for place, runs in enumerate(picked):
        run_id = folder if runs[0].partition is None else f"{folder}.{place:x}"
        rows, size = sum(run.rows for run in runs), sum(run.size_bytes for run in runs)
        sizes = FileSizes(rows, size, job.sizes.target_file_bytes)
        files = write_combined_run(
            warehouse, table.id, run_id, job.plan, runs, sizes, job.now, oldest=job.oldest, go_on=go_on
        )
        if files:
            live = sum(file.live_rows for file in files)
            made.append(Run(run_id, table.schema_id, tuple(f.file for f in files), runs[0].partition, live_rows=live))
    sync_runs(warehouse, [(table.id, run) for run in made])
    return tuple(made)
