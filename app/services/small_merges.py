"""Small merges: folded here, in the worker, because a job of Spark costs more than they are (docs/decisions/0037)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from app.core.errors import Cancelled
from app.core.plan.jobs import MergeJob
from app.core.plan.merge_plan import MergePlan, compile_plan
from app.core.table.damage import DamagedFile
from app.core.table.history import Batch, Run
from app.core.table.option_entries import ChangelogProducer
from app.core.table.schema import TableSchema
from app.services.leases import Lease
from app.storage.folded_runs import write_folded_runs
from app.storage.run_files import LeftToSpark, TokenShared
from app.storage.writable import check_not_gone

logger = logging.getLogger(__name__)
MOST_BYTES = 2**20  # of staging files: few records may be large ones, and all are in memory together


def fold_here(lease: Lease, job: MergeJob, batches: Sequence[Batch], folder: str) -> tuple[Run, ...] | None:
    """Do a small merge without Spark: fold ``batches`` and write what ``job`` says into ``folder``. The runs are
    durable after ``sync_runs``. None where it was not done: that is for Spark, which begins the folder anew.

    Raises ``Unavailable`` when the warehouse is not there any more.
    """
    site, table = lease.site, lease.claimed.table
    if not _is_small(lease, job, batches):
        return None
    return tried_here(lease, partial(write_folded_runs, site.warehouse, table.id, folder, job.plan, batches, job.now))


def tried_here(lease: Lease, write: Callable[[], tuple[Run, ...]]) -> tuple[Run, ...] | None:
    """The runs that ``write`` has written; None where it could not, which says nothing: Spark is told why, and tells.

    Raises ``Cancelled``, and ``Unavailable`` when the warehouse is not there any more.
    """
    try:
        runs = write()
    except Cancelled:
        raise
    except (
        DamagedFile,
        TokenShared,
        LeftToSpark,
    ):  # before a job of Spark all that it reads is checked, and damage noted
        return None
    except Exception:
        lease.check()  # what fails because the worker ends is for nobody else
        task = lease.claimed.task
        logger.warning("%s %s is left to Spark: it cannot be folded here", task.kind, task.id, exc_info=True)
        return None
    check_not_gone(lease.site.warehouse)  # what was written is looked for from here on
    lease.report(1.0, {})
    return runs


def _is_small(lease: Lease, job: MergeJob, batches: Sequence[Batch]) -> bool:
    """Records of an older schema are read by Spark."""
    schema_id, sizes = lease.claimed.table.schema_id, job.sizes
    small = is_small(lease.claimed.table.schema, sizes.rows, sizes.size_bytes, lease.site.small_merge_records)
    return small and all(batch.schema_id == schema_id for batch in batches)


def is_small(schema: TableSchema, records: int, size_bytes: int, most_records: int) -> bool:
    """Whether a merge of so many records of the present schema can be folded here. Those that are kept as the table's
    changelog are Spark's.
    """
    told = schema.parsed["changelog-producer"] is ChangelogProducer.INPUT
    return not told and folds_here(compile_plan(schema)) and records <= most_records and size_bytes <= MOST_BYTES


def folds_here(plan: MergePlan) -> bool:
    """Whether state rows of the plan are stored by this process as Spark stores them: the logs of replayed rows and
    unions of sketches have other bytes here.
    """
    return plan.replay is None and not plan.sketches
