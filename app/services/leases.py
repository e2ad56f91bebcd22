"""Leases: a claimed merge or compaction is worked on while its lease is renewed; its failure is recorded."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from app.catalog.leases import ClaimedMerge
from app.core.errors import Cancelled, Conflict, KeyfoldError
from app.core.table.history import TaskKind
from app.services.executor import MergeSite

logger = logging.getLogger(__name__)
BEFORE_COMMIT = 0.99  # the most that the progress says before the commit


class MergeCancelled(Cancelled):
    """The job was stopped on request, or its lease went to another worker."""


def claim(site: MergeSite, owner: str, job: TaskKind) -> Lease | None:
    """The lease of the oldest pending merge (or compaction), or None when there is none.

    No two claims that are worked on at the same time may have one ``owner``: a commit asks no more than that.
    """
    with site.database.reading() as repository:
        if not repository.leases.may_claim(job):
            return None
    with site.database.transaction() as repository:
        claimed = repository.leases.claim(owner, site.lease_seconds, job)
    return None if claimed is None else Lease(site, claimed)


def run_leased(lease: Lease, work: Callable[[ClaimedMerge, Lease], None]) -> None:
    """Do the ``work`` of a claimed merge (or compaction) while its lease is kept.

    A failure is recorded with it, never raised; batches stay staged.
    """
    site, claimed, job = lease.site, lease.claimed, lease.claimed.merge.job
    try:
        with _kept(lease):
            work(claimed, lease)
    except Exception as error:
        if lease.handed_back:
            logger.info("%s %s of %s is left to another worker", job, claimed.merge.id, claimed.table.full_name)
        elif isinstance(error, Cancelled):
            _record_failure(site, claimed, f"cancelled on request; {_NOTHING_LOST[job]}", cancelled=True)
        else:
            logger.exception("%s %s of %s failed", job, claimed.merge.id, claimed.table.full_name)
            _record_failure(site, claimed, failure_text(error, job))


_NOTHING_LOST: Mapping[TaskKind, str] = {
    TaskKind.MERGE: "the batches are still staged",
    TaskKind.COMPACTION: "the runs are as they were",
}
_NEXT: Mapping[TaskKind, str] = {
    TaskKind.MERGE: "nothing was changed; the batches are still staged and the merge will be tried again",
    TaskKind.COMPACTION: "no row was changed; it is tried again after a later merge",
}


def failure_text(error: Exception, job: TaskKind = TaskKind.MERGE) -> str:
    """What a failed merge tells its table's users: the first line, and what happens next."""
    message = error.message if isinstance(error, KeyfoldError) else str(error)
    first = (message.strip().splitlines() or [type(error).__name__])[0]
    return f"{first[:500]} ({_NEXT[job]})"


def _record_failure(site: MergeSite, claimed: ClaimedMerge, text: str, *, cancelled: bool = False) -> None:
    try:
        with site.database.transaction() as repository:
            repository.leases.fail(claimed.merge.id, claimed.lease_owner, text, cancelled=cancelled)
    except KeyfoldError:
        # The lease is gone, or the catalog is: then the lease runs out and another worker takes the merge.
        logger.warning("the failure of merge %s could not be recorded", claimed.merge.id, exc_info=True)


class Lease:
    """The lease of one job, renewed from a thread of its own while the executor works; ``tag`` cancels the job."""

    def __init__(self, site: MergeSite, claimed: ClaimedMerge) -> None:
        self.site = site
        self.claimed = claimed
        self.tag = f"keyfold-{uuid.uuid4().hex}"
        self.handed_back = False
        self._ended = threading.Event()
        self._progress: tuple[float, Mapping[str, int]] = (0.0, {})
        self._jobs, self._done = 1, 0

    def expect(self, jobs: int) -> None:
        """How many jobs of the executor the work is, each an equal share of the progress."""
        self._jobs = max(1, jobs)

    def end_job(self) -> None:
        """What is reported from here on is of the next job."""
        self._done += 1

    def report(self, fraction: float, detail: Mapping[str, int]) -> None:
        """Note the progress, which never goes back and ends with the commit only; the next renewal writes it."""
        reached = min((self._done + fraction) / self._jobs, BEFORE_COMMIT)
        self._progress = (max(self._progress[0], reached), detail)

    def report_detail(self, _: float, detail: Mapping[str, int]) -> None:
        """Note what a job does that has no share of the progress, because there is hardly ever one."""
        self._progress = (self._progress[0], detail)

    @property
    def detail(self) -> Mapping[str, int]:
        """What was reported last, of the executor's tasks."""
        return self._progress[1]

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
        with self.site.database.transaction(wakes=False) as repository:
            fraction, detail = self._progress
            merge = self.claimed.merge.id
            return repository.leases.renew(merge, self.claimed.lease_owner, self.site.lease_seconds, fraction, detail)

    def hand_back(self) -> None:
        """Stop the job and let any worker begin it anew at once; nothing that is still under way here can commit it."""
        self.handed_back = True
        self.end()
        try:
            with self.site.database.transaction() as repository:
                repository.leases.hand_back(self.claimed.merge.id, self.claimed.lease_owner)
        except Conflict:
            return  # it is over, or another worker's already
        except KeyfoldError:
            logger.warning("merge %s could not be handed back", self.claimed.merge.id, exc_info=True)
        self.site.executor.cancel(self.tag)

    def end(self) -> None:
        """Stop renewing."""
        self._ended.set()


@contextmanager
def _kept(lease: Lease) -> Iterator[None]:
    keeper = threading.Thread(target=lease.keep, name="lease", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        lease.end()
        keeper.join()
