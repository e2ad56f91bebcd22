"""Leases: a claimed merge or compaction is worked on while its lease is renewed; its failure is recorded."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from app.catalog.leases import ClaimedMerge
from app.core.errors import Cancelled, Conflict, KeyfoldError
from app.core.table import Job
from app.services.executor import MergeSite

logger = logging.getLogger(__name__)


class MergeCancelled(Cancelled):
    """The job was stopped on request, or its lease went to another worker."""


def run_claimed(site: MergeSite, owner: str, job: Job, work: Callable[[ClaimedMerge, Lease], None]) -> bool:
    """Claim the oldest pending merge (or compaction) and do its ``work``; whether there was one.

    A failure is recorded with it, never raised; batches stay staged.
    """
    with site.database.reading() as repository:
        if not repository.may_claim(job):
            return False
    with site.database.transaction() as repository:
        claimed = repository.claim_merge(owner, site.lease_seconds, job)
    if claimed is None:
        return False
    try:
        with _kept_lease(site, claimed) as lease:
            work(claimed, lease)
    except Cancelled:
        _record_failure(site, claimed, f"cancelled on request; {_NOTHING_LOST[job]}", cancelled=True)
    except Exception as error:
        logger.exception("%s %s of %s failed", job, claimed.merge.id, claimed.table.full_name)
        _record_failure(site, claimed, failure_text(error, job))
    return True


_NOTHING_LOST: Mapping[Job, str] = {
    Job.MERGE: "the batches are still staged",
    Job.COMPACTION: "the runs are as they were",
}
_NEXT: Mapping[Job, str] = {
    Job.MERGE: "nothing was changed; the batches are still staged and the merge will be tried again",
    Job.COMPACTION: "no row was changed; it is tried again after a later merge",
}


def failure_text(error: Exception, job: Job = Job.MERGE) -> str:
    """What a failed merge tells its table's users: the first line, and what happens next."""
    message = error.message if isinstance(error, KeyfoldError) else str(error)
    first = (message.strip().splitlines() or [type(error).__name__])[0]
    return f"{first[:500]} ({_NEXT[job]})"


def _record_failure(site: MergeSite, claimed: ClaimedMerge, text: str, *, cancelled: bool = False) -> None:
    try:
        with site.database.transaction() as repository:
            repository.fail_merge(claimed.merge.id, claimed.lease_owner, text, cancelled=cancelled)
    except KeyfoldError:
        # The lease is gone, or the catalog is: then the lease runs out and another worker takes the merge.
        logger.warning("the failure of merge %s could not be recorded", claimed.merge.id, exc_info=True)


class Lease:
    """The lease of one job, renewed from a thread of its own while the executor works; ``tag`` cancels the job."""

    def __init__(self, site: MergeSite, claimed: ClaimedMerge) -> None:
        self.site = site
        self.claimed = claimed
        self.tag = f"keyfold-{uuid.uuid4().hex}"
        self._ended = threading.Event()
        self._progress: tuple[float, Mapping[str, int]] = (0.0, {})

    def report(self, fraction: float, detail: Mapping[str, int]) -> None:
        """Note the progress; the next renewal writes it."""
        self._progress = (fraction, detail)

    def keep(self) -> None:
        """Renew until ``end``; stop the job when somebody asks to, or the lease is lost."""
        interval = min(self.site.lease_seconds / 4, 0.5)
        while not self._ended.wait(interval):
            try:
                if self._renew():
                    self.site.executor.cancel(self.tag)
            except Conflict:
                self.site.executor.cancel(self.tag)
                return
            except KeyfoldError:
                logger.warning("the lease of merge %s could not be renewed", self.claimed.merge.id, exc_info=True)

    def _renew(self) -> bool:
        with self.site.database.transaction() as repository:
            fraction, detail = self._progress
            merge = self.claimed.merge.id
            return repository.renew_lease(merge, self.claimed.lease_owner, self.site.lease_seconds, fraction, detail)

    def end(self) -> None:
        """Stop renewing."""
        self._ended.set()


@contextmanager
def _kept_lease(site: MergeSite, claimed: ClaimedMerge) -> Iterator[Lease]:
    lease = Lease(site, claimed)
    keeper = threading.Thread(target=lease.keep, name="lease", daemon=True)
    keeper.start()
    try:
        yield lease
    finally:
        lease.end()
        keeper.join()
