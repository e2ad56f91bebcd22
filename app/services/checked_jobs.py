"""Jobs whose inputs are checked: what Spark reads is compared with the catalog before the job begins."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.errors import Cancelled
from app.core.plan.jobs import Job, Progress, Result
from app.core.table.damage import NamedFile
from app.services.damage import note
from app.services.executor import MergeSite
from app.services.leases import Lease
from app.storage.named_files import damaged_files
from app.storage.writable import check_not_gone


def run_checked(lease: Lease, job: Job, inputs: Sequence[NamedFile], report: Progress) -> Result:
    """Do the job, which reads ``inputs``, under the lease.

    Raises ``DamagedFile`` for the first input that is not what was written, and keeps all of them as damage; nothing of
    them is folded. What breaks while the job runs makes it fail, and is then named as well. Raises ``Unavailable`` when
    the warehouse is not there any more: the job may have written to the folder in its place.
    """
    _check(lease.site, inputs)
    try:
        result = lease.site.executor.run(lease.tag, job, report)
    except Cancelled:
        raise
    except Exception:
        _check(lease.site, inputs)  # what Spark says of a file that is gone, or of a page, names no batch
        raise
    check_not_gone(lease.site.warehouse)  # what the job wrote is looked for from here on
    return result


def _check(site: MergeSite, inputs: Sequence[NamedFile]) -> None:
    damaged = damaged_files(site.warehouse, inputs)
    if damaged:
        note(site.database, damaged)
        raise damaged[0]
