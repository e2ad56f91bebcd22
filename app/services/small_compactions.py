"""Small compactions: done here, in the worker, because a job of Spark costs more than they are
(docs/decisions/0042).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from app.catalog.repository import Repository
from app.core.plan.jobs import CompactionJob
from app.core.plan.merge_plan import MergePlan, compile_plan
from app.core.table.history import Run
from app.core.table.option_entries import ChangelogProducer
from app.services.leases import Lease
from app.services.small_merges import folds_here, tried_here
from app.storage.compacted_runs import write_compacted_run
from app.storage.run_files import sync_runs

MOST_VALUES: Final = 100_000  # state rows of all runs, times the columns of one: some 0.2 s of CPU at most
MOST_BYTES: Final = 8 * 2**20  # of files
MOST_FILES: Final = 200  # each is about a millisecond


def compact_here(
    lease: Lease, job: CompactionJob, picked: Sequence[Sequence[Run]], folder: str
) -> tuple[Run, ...] | None:
    """Do a small compaction without Spark: combine the neighbouring runs of each partition in ``picked`` and write what
    ``job`` says into ``folder``. The runs are durable. None where it was not done: that is for Spark, which begins the
    folder anew.

    Raises ``Cancelled``, and ``Unavailable`` when the warehouse is not there any more.
    """
    schema_id, runs = lease.claimed.table.schema_id, [run for of_partition in picked for run in of_partition]
    small = lease.site.small_merge_records > 0 and is_small(job)
    if not small or any(run.schema_id != schema_id for run in runs):  # runs of an older schema are read by Spark
        return None
    return tried_here(lease, partial(_compacted, lease, job, picked, folder))


def is_small(job: CompactionJob) -> bool:
    """Whether a compaction of runs of the present schema can be done here."""
    return _are_few(job.plan, job.sizes.rows, job.sizes.size_bytes, sum(len(run.files) for run in job.runs))


def is_small_table(repository: Repository, table_id: str) -> bool:
    """Whether whatever is compacted of the table is done here: all its runs together are few. Raises ``NotFound``."""
    table, current = repository.tables.existing(table_id), repository.snapshots.current(table_id)
    runs = current.runs if current else ()
    told = table.schema.parsed["changelog-producer"] is ChangelogProducer.FULL_COMPACTION
    here = not told and all(run.schema_id == table.schema_id for run in runs)
    return here and _are_few(
        compile_plan(table.schema),
        sum(run.rows for run in runs),
        sum(run.size_bytes for run in runs),
        sum(len(run.files) for run in runs),
    )


def _are_few(plan: MergePlan, rows: int, size_bytes: int, files: int) -> bool:
    """Whether runs of so much can be combined here. What one stores of logs is not the same on Spark."""
    few = rows * len(plan.state_columns) <= MOST_VALUES and files <= MOST_FILES and size_bytes <= MOST_BYTES
    return few and folds_here(plan) and not plan.settles


def _compacted(lease: Lease, job: CompactionJob, picked: Sequence[Sequence[Run]], folder: str) -> tuple[Run, ...]:
    table, warehouse, made = lease.claimed.table, lease.site.warehouse, []
    for place, runs in enumerate(picked):
        run_id = folder if runs[0].partition is None else f"{folder}.{place:x}"
        written = write_compacted_run(
            warehouse, table.id, run_id, job.plan, runs, job.now, oldest=job.oldest, go_on=lease.check
        )
        if written is not None:
            made.append(Run(run_id, table.schema_id, (written.file,), runs[0].partition, live_rows=written.live_rows))
    sync_runs(warehouse, [(table.id, run) for run in made])
    return tuple(made)
