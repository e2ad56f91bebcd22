"""Small merges: folded here, in the worker, because a job of Spark costs more than they are (docs/decisions/0037)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from app.core.plan.jobs import MergeJob
from app.core.table.damage import DamagedFile
from app.core.table.history import Batch
from app.services.damage import note
from app.services.leases import Lease
from app.storage.folded_runs import TokenShared, write_folded_runs
from app.storage.writable import check_not_gone

logger = logging.getLogger(__name__)
MOST_BYTES = 2**20  # of staging files: few records may be large ones, and all are in memory together


def fold_here(lease: Lease, job: MergeJob, batches: Sequence[Batch], folder: str) -> bool:
    """Do a small merge without Spark: fold ``batches`` and write what ``job`` says into ``folder``; whether it was
    done. What was not is for Spark, which begins the folder anew.

    Raises ``DamagedFile``, which is kept as damage, and ``Unavailable`` when the warehouse is not there any more.
    """
    site, table = lease.site, lease.claimed.table
    if not _is_small(lease, job, batches):
        return False
    try:
        write_folded_runs(site.warehouse, table.id, folder, job.plan, batches, job.now)
    except DamagedFile as error:
        note(site.database, [error])
        raise
    except TokenShared:
        return False
    except Exception:
        logger.warning("merge %s is left to Spark: it cannot be folded here", lease.claimed.task.id, exc_info=True)
        return False
    check_not_gone(site.warehouse)  # what was written is looked for from here on
    lease.report(1.0, {})
    return True


def _is_small(lease: Lease, job: MergeJob, batches: Sequence[Batch]) -> bool:
    """Records of an older schema are read by Spark, as are those that are kept as the table's changelog; and the logs
    of replayed rows and unions of sketches are Spark's, for what is stored of them here has other bytes.
    """
    few = job.sizes.rows <= lease.site.small_merge_records and job.sizes.size_bytes <= MOST_BYTES
    schema_id = lease.claimed.table.schema_id
    plain = job.input_changelog is None and job.plan.replay is None and not job.plan.unions
    return few and plain and all(batch.schema_id == schema_id for batch in batches)
