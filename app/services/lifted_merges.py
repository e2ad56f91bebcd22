"""Merges of many records: done here, in the worker, by whole columns (docs/decisions/0044)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Final

from app.core.plan.jobs import MergeJob
from app.core.plan.record_forms import lifts_by_form
from app.core.table.history import Batch, Run
from app.core.table.option_entries import ChangelogProducer
from app.services.leases import Lease
from app.services.small_merges import tried_here
from app.storage.lifted_runs import write_lifted_runs

MOST_RECORDS: Final = 1_000_000  # of a run of one file, as Spark's tasks have them
MOST_BATCHES: Final = 200  # each file is about a millisecond
_one_at_a_time = threading.Lock()  # for their memory


def lift_here(lease: Lease, job: MergeJob, batches: Sequence[Batch], folder: str) -> tuple[Run, ...] | None:
    """Do a merge without Spark, by whole columns, and write what ``job`` says into ``folder``. The runs are durable
    after ``sync_runs``. None where it was not done: that is for Spark, which begins the folder anew.

    Raises ``Cancelled``, and ``Unavailable`` when the warehouse is not there any more.
    """
    if not _can_be_tried(lease, job, batches):
        return None
    site, table, most = lease.site, lease.claimed.table, lease.site.lifted_merge_bytes
    write = partial(write_lifted_runs, site.warehouse, table.id, folder, job.plan, batches, job.now, most, lease.check)
    with lease.alone(_one_at_a_time):
        return tried_here(lease, write)


def _can_be_tried(lease: Lease, job: MergeJob, batches: Sequence[Batch]) -> bool:
    """Whether the batches may be few and small enough, and their plan one whose state rows are the same when Spark
    writes them. Records of an older schema are read by Spark, and those that are the table's changelog are written by
    it.
    """
    site, table, sizes = lease.site, lease.claimed.table, job.sizes
    told = table.schema.parsed["changelog-producer"] is ChangelogProducer.INPUT
    small = sizes.size_bytes <= min(site.lifted_merge_bytes, sizes.target_file_bytes)
    few = sizes.rows <= MOST_RECORDS and len(batches) <= MOST_BATCHES
    here = site.small_merge_records > 0 and not told and job.plan.lifts and job.plan.replay is None
    present = all(batch.schema_id == table.schema_id for batch in batches)
    return here and small and few and present and lifts_by_form(job.plan)
