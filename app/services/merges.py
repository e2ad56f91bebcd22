"""Merges: asked for, claimed under a lease, run on the executor, committed by compare-and-swap (design §2)."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from app.catalog.database import CatalogDatabase
from app.catalog.leases import ClaimedMerge
from app.core.accumulators import overflow
from app.core.errors import Cancelled, Conflict, ErrorCode, KeyfoldError
from app.core.keys import key_to_json
from app.core.merge_plan import MergePlan, compile_plan
from app.core.options import parse_options
from app.core.table import Backlog, Batch, MergeTrigger, Run, Snapshot, Table
from app.storage.layout import Warehouse, run_folder, staging_file
from app.storage.runs import file_uris, read_run, totals_fit

logger = logging.getLogger(__name__)

Progress = Callable[[float, Mapping[str, int]], None]
FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 300.0
COMMIT_TRIES = 20


class MergeCancelled(Cancelled):
    """The merge was stopped on request, or its lease went to another worker."""


class MergeExecutor(Protocol):
    """What runs merges: Spark in the service, anything with the same meaning in a test."""

    def ready(self) -> bool:
        """Whether it could start a merge now; returns within about two seconds."""

    def warm_up(self) -> None:
        """Run something small, so that the first merge does not pay for what only first queries do."""

    def merge(
        self,
        tag: str,
        plan: MergePlan,
        batches: Mapping[str, int],
        records: int,
        output: str,
        now: int,
        on_progress: Progress,
    ) -> None:
        """Fold staging files (URI to batch number) with ``records`` records into one run below the URI ``output``.

        ``now`` is the time of the merge in epoch seconds, stored where dead rows are forgotten some day.
        """

    def compact(
        self,
        tag: str,
        plan: MergePlan,
        runs: Sequence[tuple[MergePlan, tuple[str, ...]]],
        rows: int,
        output: str,
        oldest: bool,
        now: int,
        on_progress: Progress,
    ) -> None:
        """Combine neighbouring runs (the plan of each and its file URIs, oldest first) with ``rows`` rows into one.

        It is written below the URI ``output``. ``now`` (epoch seconds) tells which dead rows are old enough to go.
        """

    def overflows(
        self, tag: str, plan: MergePlan, runs: Sequence[tuple[MergePlan, tuple[str, ...]]], on_progress: Progress
    ) -> Mapping[str, Any] | None:
        """A key of the newest run whose total over all ``runs`` (as in ``compact``) leaves its column: its state row;
        None if there is none.
        """

    def cancel(self, tag: str) -> None:
        """Stop the job ``tag``, which then raises ``Cancelled``."""


@dataclass(frozen=True)
class MergeSite:
    """Where merges run: the catalog, the files, the executor, how long a silent worker keeps its lease (seconds), and
    the time (epoch seconds) that merges and compactions take for now.
    """

    database: CatalogDatabase
    warehouse: Warehouse
    executor: MergeExecutor
    lease_seconds: float
    clock: Callable[[], float] = time.time


def request_due_merges(database: CatalogDatabase, now: datetime | None = None) -> int:
    """Ask for a merge of every table whose staging area is due; returns how many were asked for."""
    moment = now or datetime.now(UTC)
    with database.reading() as repository:
        due = [
            (backlog, trigger) for backlog in repository.backlogs() if (trigger := _due(backlog, moment)) is not None
        ]
    for backlog, trigger in due:
        with database.transaction() as repository:
            if repository.get_table_by_id(backlog.table.id) is not None:
                repository.request_merge(backlog.table.id, trigger)
    return len(due)


def _due(backlog: Backlog, now: datetime) -> MergeTrigger | None:
    """Why the backlog should be merged now; a table whose merges fail waits longer each time."""
    if backlog.batches == 0 or backlog.oldest_accepted_at is None:
        return None
    if backlog.failures and backlog.last_failed_at is not None:
        wait = min(FIRST_RETRY_SECONDS * 2 ** min(backlog.failures - 1, 20), LONGEST_RETRY_SECONDS)
        if now < backlog.last_failed_at + timedelta(seconds=wait):
            return None
    options, _ = parse_options(backlog.table.schema)
    if backlog.records >= options["merge.max-staged-rows"]:
        return MergeTrigger.ROWS
    if now - backlog.oldest_accepted_at >= options["merge.max-staleness"]:
        return MergeTrigger.STALENESS
    return None


def run_next_merge(site: MergeSite, owner: str) -> bool:
    """Claim the oldest pending merge and run it to its end; whether there was one.

    A failure is recorded with the merge, never raised; its batches stay staged.
    """
    with site.database.transaction() as repository:
        claimed = repository.claim_merge(owner, site.lease_seconds)
    if claimed is None:
        return False
    try:
        with _kept_lease(site, claimed) as lease:
            snapshot = _run(site, claimed, lease)
    except Cancelled:
        _record_failure(site, claimed, "cancelled on request; the batches are still staged", cancelled=True)
    except Exception as error:
        logger.exception("merge %s of %s failed", claimed.merge.id, claimed.table.full_name)
        _record_failure(site, claimed, failure_text(error))
    else:
        if snapshot is not None:
            _compact_if_due(site, claimed, snapshot)
    return True


def failure_text(error: Exception) -> str:
    """What a failed merge tells its table's users: the first line, and what happens next."""
    message = error.message if isinstance(error, KeyfoldError) else str(error)
    first = (message.strip().splitlines() or [type(error).__name__])[0]
    return f"{first[:500]} (nothing was changed; the batches are still staged and the merge will be tried again)"


def _record_failure(site: MergeSite, claimed: ClaimedMerge, text: str, *, cancelled: bool = False) -> None:
    try:
        with site.database.transaction() as repository:
            repository.fail_merge(claimed.merge.id, claimed.lease_owner, text, cancelled=cancelled)
    except KeyfoldError:
        # The lease is gone, or the catalog is: then the lease runs out and another worker takes the merge.
        logger.warning("the failure of merge %s could not be recorded", claimed.merge.id, exc_info=True)


class _Lease:
    """The lease of one merge, renewed from a thread of its own while the executor works."""

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
def _kept_lease(site: MergeSite, claimed: ClaimedMerge) -> Iterator[_Lease]:
    lease = _Lease(site, claimed)
    keeper = threading.Thread(target=lease.keep, name="lease", daemon=True)
    keeper.start()
    try:
        yield lease
    finally:
        lease.end()
        keeper.join()


def _run(site: MergeSite, claimed: ClaimedMerge, lease: _Lease) -> Snapshot | None:
    """Fold the claimed batches and commit; the snapshot, or None if the batches held no record."""
    filled = [batch for batch in claimed.batches if batch.records]
    if not filled:
        with site.database.transaction() as repository:
            repository.finish_merge_without_changes(claimed.merge.id, claimed.lease_owner)
        return None
    run = _fold(site, claimed, filled, lease)
    _check_totals(site, claimed, run, lease)
    records = sum(batch.records for batch in filled)
    return _commit_merge(site, claimed, run, records)


def _fold(site: MergeSite, claimed: ClaimedMerge, batches: Sequence[Batch], lease: _Lease) -> Run:
    table = claimed.table
    # A run of its own for every try: a worker that lost its lease may still be writing.
    run_id = uuid.uuid4().hex
    numbers = {site.warehouse.uri(*staging_file(table.id, batch.file)): batch.number for batch in batches}
    records = sum(batch.records for batch in batches)
    output = site.warehouse.uri(*run_folder(table.id, run_id))
    now = int(site.clock())
    site.executor.merge(lease.tag, compile_plan(table.schema), numbers, records, output, now, lease.report)
    return read_run(site.warehouse, table.id, run_id, table.schema_id)


def _check_totals(site: MergeSite, claimed: ClaimedMerge, run: Run, lease: _Lease) -> None:
    """Raises ``Conflict`` when a total of the table would leave its column's type (merge-semantics A.7).

    The footers almost always prove that none can; only otherwise are the keys of ``run`` looked up in the older runs.
    """
    plan = compile_plan(claimed.table.schema)
    table_id = claimed.table.id
    runs = [older for older in (*(claimed.base.runs if claimed.base else ()), run) if older.files]
    if not plan.totals or not run.files or totals_fit(site.warehouse, table_id, runs, plan.totals):
        return
    inputs = [(_plan_of(site, claimed.table, one), file_uris(site.warehouse, table_id, one)) for one in runs]
    state = site.executor.overflows(lease.tag, plan, inputs, lease.report)
    if state is not None:
        bounds = next(bounds for bounds in plan.totals if state[bounds.carry] is not None)
        key = tuple(state[name] for name in plan.schema.primary_key)
        raise overflow(bounds.column, key_to_json(plan.schema, key))


def _commit_merge(site: MergeSite, claimed: ClaimedMerge, run: Run, records: int) -> Snapshot:
    """Append ``run`` to the current snapshot. It read no other run, so it fits on whatever was committed meanwhile."""
    for _ in range(COMMIT_TRIES):
        with site.database.reading() as repository:
            base = repository.current_snapshot(claimed.table.id)
        runs = (*(base.runs if base else ()), run)
        try:
            with site.database.transaction() as repository:
                return repository.commit_merge(
                    claimed.merge.id,
                    claimed.lease_owner,
                    runs,
                    base_snapshot_id=base.id if base else None,
                    rows=run.rows,
                    records=records,
                )
        except Conflict as error:
            if error.code is not ErrorCode.COMMIT_CONFLICT or not _moved_on(site, claimed, base):
                raise
    raise Conflict(f"{COMMIT_TRIES} other commits came first; the merge will be tried again")


def _moved_on(site: MergeSite, claimed: ClaimedMerge, base: Snapshot | None) -> bool:
    with site.database.reading() as repository:
        current = repository.current_snapshot(claimed.table.id)
    return (current.id if current else None) != (base.id if base else None)


def _compact_if_due(site: MergeSite, claimed: ClaimedMerge, snapshot: Snapshot) -> None:
    """Combine all runs once there are as many as the table allows; a failure costs speed, never answers."""
    options, _ = parse_options(claimed.table.schema)
    if len(snapshot.runs) < options["num-sorted-run.compaction-trigger"]:
        return
    try:
        compact_all(site, claimed, snapshot)
    except Exception:
        logger.exception("compaction of %s failed; the next merge tries again", claimed.table.full_name)


def compact_all(site: MergeSite, claimed: ClaimedMerge, snapshot: Snapshot) -> Snapshot:
    """Combine all runs of ``snapshot`` into one and commit it under whatever runs were committed meanwhile.

    Raises ``Conflict`` when another compaction was faster.
    """
    table = claimed.table
    run_id = uuid.uuid4().hex
    inputs = [
        (_plan_of(site, table, run), file_uris(site.warehouse, table.id, run)) for run in snapshot.runs if run.files
    ]
    rows = sum(run.rows for run in snapshot.runs)
    output = site.warehouse.uri(*run_folder(table.id, run_id))
    tag = f"keyfold-{run_id}"
    if inputs:
        plan, now = compile_plan(table.schema), int(site.clock())
        site.executor.compact(tag, plan, inputs, rows, output, True, now, lambda *_: None)
    compacted = read_run(site.warehouse, table.id, run_id, table.schema_id)
    return _commit_compaction(site, table.id, snapshot, compacted)


def _plan_of(site: MergeSite, table: Table, run: Run) -> MergePlan:
    """The plan under which a run was written."""
    if run.schema_id == table.schema_id:
        return compile_plan(table.schema)
    with site.database.reading() as repository:
        return compile_plan(repository.schema_at(table.id, run.schema_id))


def _commit_compaction(site: MergeSite, table_id: str, snapshot: Snapshot, compacted: Run) -> Snapshot:
    replaced = [run.id for run in snapshot.runs]
    for _ in range(COMMIT_TRIES):
        with site.database.reading() as repository:
            current = repository.current_snapshot(table_id)
        if current is None or [run.id for run in current.runs[: len(replaced)]] != replaced:
            break
        try:
            with site.database.transaction() as repository:
                runs = (compacted, *current.runs[len(replaced) :])
                return repository.commit_compaction(table_id, current.id, runs)
        except Conflict:
            continue
    raise Conflict("the compacted runs are no longer part of the table")
