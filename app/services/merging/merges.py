"""Merges: requested, claimed under a lease, run on the executor, committed by compare-and-swap (docs/map.md)."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from app.catalog.database import CatalogDatabase
from app.catalog.repository import ClaimedTask, Repository
from app.core.errors import Conflict
from app.core.plan.merging.merge_plan import compile_plan
from app.core.rules.accumulators import overflow
from app.core.table.history import (
    Backlog,
    Batch,
    CatalogTask,
    ChangelogFile,
    Run,
    Snapshot,
    Table,
    TaskKind,
    TaskState,
    TaskTrigger,
)
from app.core.table.options.entries import ChangelogProducer
from app.kernel.plan_tasks import Plan, changes_written, runs_written
from app.kernel.tasks import Result, Task
from app.services.merging.compactions import changes_wanted, check_producer, request_due_compaction
from app.services.merging.leases import Done, Lease, run_leased
from app.services.merging.task_results import plan_of, run_tasks
from app.services.shared.commits import Commit, commit_on_current
from app.services.shared.executor import MergeSite
from app.services.shared.pages import Page, PageRequest, page_of
from app.services.shared.retries import time_left
from app.storage.runs.runs import check_written, totals_fit

logger = logging.getLogger(__name__)
_NOW = timedelta(0)


@dataclass(frozen=True)
class DueMerges:
    """How many tables are due, and in how many seconds the next one will be; None if no other batch waits."""

    tables: int
    next_seconds: float | None


def request_due_merges(database: CatalogDatabase, now: datetime | None = None) -> DueMerges:
    """Request a merge of every table whose staging area is due, in one transaction and in the order in which they
    became due.
    """
    with database.reading() as repository:
        backlogs = repository.tasks.backlogs()
        moment = now or repository.now()  # read after the backlogs, so that none lies in the future
    dated = [(backlog, merge) for backlog in backlogs if (merge := _due(backlog, moment))]
    due = sorted((pair for pair in dated if pair[1].late >= _NOW), key=lambda pair: pair[1].late, reverse=True)
    new = {backlog.table.id: merge.trigger for backlog, merge in due if not backlog.pending}
    if new:  # a commit wakes every worker
        with database.transaction() as repository:
            repository.tasks.request_all(new)
    left = (-merge.late.total_seconds() for _, merge in dated if merge.late < _NOW)
    return DueMerges(len(due), min(left, default=None))


@dataclass(frozen=True)
class _Due:
    """Why a backlog should be merged, and for how many seconds it has been due; negative before it is."""

    trigger: TaskTrigger
    late: timedelta


def _due(backlog: Backlog, now: datetime) -> _Due | None:
    """Return when the backlog should be merged; None without batches. A table whose merges fail waits longer each time.

    A time in the future was stored before the clock was set back, and counts as due.
    """
    oldest, newest = backlog.oldest_accepted_at, backlog.newest_accepted_at
    if oldest is None or newest is None:
        return None
    options, age = backlog.table.schema.parsed, now - oldest
    if backlog.records >= options["merge.max-staged-rows"]:
        trigger, late = TaskTrigger.ROWS, max(now - newest, _NOW)
    else:
        trigger, late = TaskTrigger.STALENESS, _NOW if age < _NOW else age - options["merge.max-staleness"]
        if (
            backlog.failures is not None
        ):  # due since its pause ended, so that it does not overtake tables without failures
            late = min(late, _NOW)
    left = time_left(backlog.failures, now)
    return _Due(trigger, min(late, -left) if left else late)


@dataclass(frozen=True)
class Folded:
    """The files that one merge wrote: its runs, and the changes if the table keeps a changelog.

    ``compared`` is the snapshot with whose rows changes and totals were computed; None if there was none, or if the
    merge needs no older rows.
    """

    runs: tuple[Run, ...]
    changelog: tuple[ChangelogFile, ...] = ()
    compared: Snapshot | None = None
    records: int = 0


def run_merge(lease: Lease) -> None:
    """Run a claimed merge to its end. A failure is recorded with it, never raised; its batches stay staged."""
    run_leased(lease, lambda claimed, held: _merge(held.site, claimed, held))


def _merge(site: MergeSite, claimed: ClaimedTask, lease: Lease) -> Done:
    """Fold the claimed batches and commit."""
    filled = filled_batches(claimed)
    if not filled:
        with site.database.transaction() as repository:
            repository.claimed_tasks.finish_merge_without_changes(claimed.task.id, claimed.lease_owner)
        return Done()
    planned = plan_merge(site, claimed)
    lease.expect(2 if planned.looks_up else 1)
    folded = folded_by(site, planned, run_tasks(lease, planned.tasks, lease.report))
    lease.end_job()
    _commit_merge(site, claimed, _compared(planned, folded, lease), lease)
    return Done(sum(run.rows for run in folded.runs), folded.records)


def filled_batches(claimed: ClaimedTask) -> list[Batch]:
    """Return the claimed batches that hold records."""
    return [batch for batch in claimed.batches if batch.records]


@dataclass(frozen=True)
class PlannedMerge:
    """A claimed merge, and the tasks that fold its records into the folder ``output``."""

    claimed: ClaimedTask
    plan: Plan
    output: str
    tasks: Sequence[Task]

    @property
    def producer(self) -> ChangelogProducer:
        """The producer of the table's changelog."""
        producer: ChangelogProducer = self.claimed.table.schema.parsed["changelog-producer"]
        return producer

    @property
    def looks_up(self) -> bool:
        """Whether the changes of rows are looked up after the fold."""
        return self.producer is ChangelogProducer.LOOKUP


def plan_merge(site: MergeSite, claimed: ClaimedTask) -> PlannedMerge:
    """Return the tasks of a claimed merge."""
    batches, older = filled_batches(claimed), claimed.base.runs if claimed.base else ()
    written_under = {batch.schema_id for batch in batches} | {run.schema_id for run in older}
    plan = plan_of(site, claimed.table, written_under)
    # A new folder for every attempt: a worker that lost its lease may still be writing.
    output = uuid.uuid4().hex
    keeps_input = claimed.table.schema.parsed["changelog-producer"] is ChangelogProducer.INPUT
    return PlannedMerge(claimed, plan, output, plan.merge(batches, output, output if keeps_input else None))


def folded_by(site: MergeSite, planned: PlannedMerge, results: Sequence[Result]) -> Folded:
    """Return the runs that the tasks of a merge have written. Raise ``Unavailable`` if this warehouse does not have
    them.
    """
    claimed = planned.claimed
    runs = runs_written(planned.output, claimed.table.schema_id, results)
    check_written(site.warehouse, claimed.table.id, runs)
    records = sum(batch.records for batch in claimed.batches)
    return Folded(runs, changes_written(results), records=records)


def _compared(planned: PlannedMerge, folded: Folded, lease: Lease) -> Folded:
    """Return the merge with its changes of rows, if the table's changelog is written by lookup (docs/changelogs.md).
    Raise ``Unfoldable`` if a total of the table would leave its column's type.

    Both look at the rows of the current snapshot: a rollback may have been committed since the merge was claimed.
    """
    table, site = planned.claimed.table, lease.site
    if not planned.looks_up and not compile_plan(table.schema).totals:
        return folded
    with site.database.reading() as repository:
        base = repository.snapshots.current(table.id)
    older = base.runs if base else ()
    plan = plan_of(site, table, {run.schema_id for run in (*older, *folded.runs)})
    _check_totals(table, plan, older, folded.runs, lease)
    compared = replace(folded, compared=base)
    return _with_changes(planned, plan, older, compared, lease) if planned.looks_up else compared


def _with_changes(planned: PlannedMerge, plan: Plan, older: Sequence[Run], folded: Folded, lease: Lease) -> Folded:
    """Return the merge with the changes that its runs make to the rows of the runs ``older``."""
    folder, wanted = uuid.uuid4().hex, changes_wanted(planned.claimed.table.schema.parsed)
    tasks = [task for new in folded.runs for task in plan.changes([*_of_partition(older, new), new], 1, folder, wanted)]
    return replace(folded, changelog=changes_written(run_tasks(lease, tasks, lease.report)))


def _of_partition(runs: Iterable[Run], new: Run) -> list[Run]:
    return [run for run in runs if run.partition == new.partition]


def _check_totals(table: Table, plan: Plan, older: Sequence[Run], runs: Sequence[Run], lease: Lease) -> None:
    """Raise ``Unfoldable`` if a total of the table would leave its column's type (docs/semantics.md, A.7).

    The ranges of totals usually prove that all fit. Otherwise the keys of ``runs`` are looked up in the ``older`` runs.
    """
    if totals_surely_fit(lease.site, table, older, runs):
        return
    tasks = [task for new in runs for task in plan.overflow([*_of_partition(older, new), new], 1)]
    results = run_tasks(lease, tasks, lease.report_detail)
    exceeded = next((result.overflow for result in results if result.overflow), None)
    if exceeded is not None:
        raise overflow(table.schema.by_name[exceeded.column], exceeded.key, endless=exceeded.endless)


def totals_surely_fit(site: MergeSite, table: Table, older: Sequence[Run], runs: Sequence[Run]) -> bool:
    """Return whether ranges of totals prove that ``runs`` on top of the ``older`` ones let no total of the table leave
    its column's type; false proves nothing.
    """
    totals = compile_plan(table.schema).totals
    touched = {run.partition for run in runs}
    below = [run for run in older if run.partition in touched]
    return not totals or totals_fit(site.warehouse, table.id, [*below, *runs], totals)


def _commit_merge(site: MergeSite, claimed: ClaimedTask, folded: Folded, lease: Lease) -> None:
    """Append the runs to the current snapshot, even if it is newer than the merge's base: the runs depend on no other
    run. What was compared with older rows is only valid if nothing but compactions were committed since.
    """

    def prepare(reader: Repository, base: Snapshot | None) -> Commit[Snapshot]:
        _check_base(reader, claimed, folded, base)

        def commit(repository: Repository) -> Snapshot:
            snapshot = repository.claimed_tasks.commit_merge(
                claimed.task.id,
                claimed.lease_owner,
                (*(base.runs if base else ()), *folded.runs),
                base_snapshot_id=base.id if base else None,
                rows=sum(run.rows for run in folded.runs),
                records=folded.records,
                changelog=folded.changelog,
                detail=lease.detail,
            )
            check_producer(repository, claimed, snapshot)
            request_due_compaction(repository, claimed.table, snapshot)
            return snapshot

        return commit

    commit_on_current(site.database, claimed.table.id, prepare)


def _check_base(reader: Repository, claimed: ClaimedTask, folded: Folded, base: Snapshot | None) -> None:
    """Raise ``Conflict`` if the rows have changed since the snapshot with which the merge was compared."""
    compared = folded.compared
    if compared is None or base is None:
        return
    if not reader.commits.only_compacted(claimed.table.id, compared.id, base.id):
        raise Conflict("the table's rows were changed by a rollback or a partition drop; the merge will be retried")


def request_merge(database: CatalogDatabase, table_id: str) -> CatalogTask:
    """Request a merge of all staged batches."""
    with database.transaction() as repository:
        return ask_for_merge(repository, table_id)


def ask_for_merge(repository: Repository, table_id: str) -> CatalogTask:
    """Return a pending merge of all staged batches; an existing one is returned again."""
    return repository.tasks.request(table_id, TaskTrigger.REQUEST)


def list_merges(
    repository: Repository,
    table: Table,
    request: PageRequest,
    state: TaskState | None = None,
    kind: TaskKind | None = None,
) -> Page[CatalogTask]:
    """Return a page of the table's merges and compactions, newest first, only those in ``state`` and of ``kind``, if
    given. Raise ``Invalid``.
    """
    listed = repository.tasks.page(table.id, after=request.after, limit=request.and_one_more, state=state, kind=kind)
    return page_of(listed, request, lambda merge: merge.id)
