"""ClaimedTasks: a claimed task runs while its lease is renewed; a failure is recorded."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass

from app.catalog.tasks.claimed_tasks import ClaimedTask
from app.core.errors import Cancelled, Conflict, DamagedCatalog, KeyfoldError, Unfoldable
from app.core.table.history import BatchState, Blame, TaskKind
from app.core.table.upkeep.damage import DamagedFile, FileKind
from app.files.object_stores import reason_of_store
from app.files.writable import NO_ROOM, reason_of
from app.services.shared.executor import MergeSite
from app.telemetry.entries import Counted, TaskOutcome
from app.telemetry.logs import about
from app.telemetry.traces import job_tag, span

logger = logging.getLogger(__name__)
BEFORE_COMMIT = 0.99  # the highest progress before the commit


def claim_one(site: MergeSite, owner: str, task_id: str, table_id: str) -> Lease | None:
    """Return a lease of this task; None if it cannot be claimed any more, or if the catalog is damaged for the table.

    Then its tasks wait, and those of other tables go on. Concurrent claims need different ``owner`` names: a commit
    checks nothing but the owner.
    """
    try:
        with site.database.transaction() as repository:
            claimed = repository.claimed_tasks.take(task_id, table_id, owner, site.lease_seconds)
    except DamagedCatalog as error:
        logger.error("a task of table %s waits: %s", table_id, error)  # noqa: TRY400  # the reason is all
        return None
    return None if claimed is None else Lease(site, claimed)


@dataclass(frozen=True)
class Done:
    """The counts of a committed merge or compaction: state rows, and the staged records in them."""

    rows: int = 0
    records: int = 0


def run_leased(lease: Lease, work: Callable[[ClaimedTask, Lease], Done]) -> None:
    """Do the ``work`` of a claimed task while its lease is renewed.

    A failure is recorded with it, never raised; batches that it has not committed stay staged. One line is logged in
    either case.
    """
    claimed = lease.claimed
    ids = {claimed.task.kind.value: claimed.task.id, "table": claimed.table.id}
    with about(**ids), span(claimed.task.kind.value, {**ids, "table": claimed.table.full_name}) as here:
        began = time.monotonic()
        lease.tag = job_tag()
        outcome, done = _run(lease, work)
        here.set_attributes({"keyfold.outcome": outcome, "keyfold.rows": done.rows, "keyfold.records": done.records})
        log_outcome(lease, outcome, done, time.monotonic() - began)


def _run(lease: Lease, work: Callable[[ClaimedTask, Lease], Done]) -> tuple[TaskOutcome, Done]:
    """Return the outcome, and the committed counts or, after a failure, the number of records that still wait."""
    site, claimed, kind = lease.site, lease.claimed, lease.claimed.task.kind
    try:
        with _renewing(lease):
            return TaskOutcome.SUCCEEDED, work(claimed, lease)
    except Exception as error:
        waiting = Done(records=sum(batch.records for batch in claimed.batches))
        if lease.handed_back:
            return TaskOutcome.HANDED_BACK, waiting
        if isinstance(error, Cancelled):
            _record_failure(site, claimed, f"cancelled on request; {_NOTHING_LOST[kind]}", cancelled=True)
            return TaskOutcome.CANCELLED, waiting
        logger.exception("%s %s of %s failed", kind, claimed.task.id, claimed.table.full_name)
        _record_failure(site, claimed, failure_text(error, kind), blame=_blame(error, claimed))
        return TaskOutcome.FAILED, waiting


def log_outcome(lease: Lease, outcome: TaskOutcome, done: Done, seconds: float) -> None:
    """Count a finished task, and log one line about it."""
    claimed, metrics = lease.claimed, lease.site.database.metrics
    kind = claimed.task.kind.value
    metrics.observe(Counted.TASK_SECONDS, seconds, kind, outcome)
    metrics.count(Counted.TASK_ROWS, kind, outcome, amount=done.rows)
    metrics.count(Counted.TASK_RECORDS, kind, outcome, amount=done.records)
    fields = {"outcome": outcome.value, "seconds": round(seconds, 3), "rows": done.rows, "records": done.records}
    logger.info(
        "%s %s of %s %s: %d records, %d rows, %.2f s",
        *(kind, claimed.task.id, claimed.table.full_name, outcome, done.records, done.rows, seconds),
        extra=fields,
    )


_NOTHING_LOST: Mapping[TaskKind, str] = {
    TaskKind.MERGE: "the batches are still staged",
    TaskKind.COMPACTION: "the runs are as they were",
}
_NEXT: Mapping[TaskKind, str] = {
    TaskKind.MERGE: "nothing was changed; the batches are still staged and the merge will be retried",
    TaskKind.COMPACTION: "no row was changed; it is retried after a later merge",
}


def failure_text(error: Exception, kind: TaskKind) -> str:
    """Return the message for users about a failed task of their table: the error's first line, and the next step."""
    of_store = reason_of_store(error) if isinstance(error, OSError) else None
    message = error.message if isinstance(error, KeyfoldError) else of_store or str(error)
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        message = f"the warehouse cannot be written: {reason_of(error)}; make room"
    first = (message.strip().splitlines() or [type(error).__name__])[0]
    return f"{first[:500]} ({_NEXT[kind]})"


def _blame(error: Exception, claimed: ClaimedTask) -> Blame | None:
    """Return which records the error blames; None if it is not about records."""
    if isinstance(error, Unfoldable):
        named = next((batch.id for batch in claimed.batches if batch.number == error.batch_number), None)
        return Blame(BatchState.POISONED, error.message, named)
    if isinstance(error, DamagedFile) and error.file.kind is FileKind.STAGING:
        return Blame(BatchState.DAMAGED, error.message, error.file.batch_id)
    return None


def _record_failure(
    site: MergeSite, claimed: ClaimedTask, text: str, *, cancelled: bool = False, blame: Blame | None = None
) -> None:
    try:
        with site.database.transaction() as repository:
            repository.claimed_tasks.fail(claimed.task.id, claimed.lease_owner, text, cancelled=cancelled, blame=blame)
    except KeyfoldError:
        # The lease or the catalog is lost: the lease will expire, and another worker will claim the task.
        logger.warning("the failure of task %s could not be recorded", claimed.task.id, exc_info=True)


class Lease:
    """The lease of one task, renewed from a separate thread while the executor works; ``tag`` stops its jobs."""

    def __init__(self, site: MergeSite, claimed: ClaimedTask) -> None:
        self.site = site
        self.claimed = claimed
        self.tag = job_tag()
        self.handed_back = False
        self._ended = threading.Event()
        self._progress: tuple[float, Mapping[str, int]] = (0.0, {})
        self._jobs, self._done = 1, 0

    def expect(self, jobs: int) -> None:
        """Set the number of jobs of the task, each an equal share of its progress."""
        self._jobs = max(1, jobs)

    def end_job(self) -> None:
        """Count a finished job; later reports are about the next one."""
        self._done += 1

    def report(self, fraction: float, detail: Mapping[str, int]) -> None:
        """Note the progress, which never decreases and is complete only with the commit; the next renewal stores it."""
        reached = min((self._done + fraction) / self._jobs, BEFORE_COMMIT)
        self._progress = (max(self._progress[0], reached), detail)

    def report_detail(self, _: float, detail: Mapping[str, int]) -> None:
        """Note an activity of a job that is too rare to have a share of the progress."""
        self._progress = (self._progress[0], detail)

    @property
    def detail(self) -> Mapping[str, int]:
        """The last report of Spark's tasks."""
        return self._progress[1]

    def keep(self) -> None:
        """Renew until ``end``; stop the task's jobs if a caller cancelled the task, or the lease is lost."""
        interval = min(self.site.lease_seconds / 4, 0.5)
        while not self._ended.wait(interval):
            if not self.renew_once():
                return

    def renew_once(self) -> bool:
        """Renew the lease; return whether it is still held. Stop the task's jobs if it is not, or if a caller
        cancelled the task.
        """
        try:
            if self._renew():
                self._stop()
        except Conflict:
            self._stop()
            return False
        except KeyfoldError:
            logger.warning("the lease of task %s could not be renewed", self.claimed.task.id, exc_info=True)
        return True

    def _stop(self) -> None:
        self.site.executor.cancel(self.tag)

    def _renew(self) -> bool:
        with self.site.database.transaction(wakes=False) as repository:
            fraction, detail = self._progress
            task = self.claimed.task.id
            return repository.claimed_tasks.renew(
                task, self.claimed.lease_owner, self.site.lease_seconds, fraction, detail
            )

    def hand_back(self) -> None:
        """Stop the task and let any worker claim it at once; what still runs here cannot commit any more."""
        self.handed_back = True
        self.end()
        try:
            with self.site.database.transaction() as repository:
                repository.claimed_tasks.hand_back(self.claimed.task.id, self.claimed.lease_owner)
        except Conflict:
            return  # the task has ended, or another worker has claimed it
        except KeyfoldError:
            logger.warning("task %s could not be handed back", self.claimed.task.id, exc_info=True)
        self._stop()

    def end(self) -> None:
        """Stop renewing."""
        self._ended.set()


@contextmanager
def _renewing(lease: Lease) -> Iterator[None]:
    """Renew the lease from a thread while the body runs."""
    keeper = threading.Thread(target=copy_context().run, args=(lease.keep,), name="lease", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        lease.end()
        keeper.join()


@contextmanager
def renewing(site: MergeSite, leases: Sequence[Lease]) -> Iterator[None]:
    """Renew the leases of a round from one thread while the body runs. A task whose lease is lost cannot commit."""
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(site.lease_seconds / 4):
            for lease in leases:
                lease.renew_once()

    keeper = threading.Thread(target=copy_context().run, args=(keep,), name="leases", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        ended.set()
        keeper.join()
