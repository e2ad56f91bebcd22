"""Merges: asked for, listed, claimed under a lease, run on the executor, committed by compare-and-swap (design §2)."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from app.catalog.database import CatalogDatabase
from app.catalog.repository import ClaimedTask, Repository
from app.core.errors import Conflict, Unavailable
from app.core.plan.jobs import ChangesJob, FileSizes, MergeJob, OverflowJob
from app.core.plan.merge_plan import compile_plan
from app.core.rules.accumulators import overflow
from app.core.table.history import (
    Backlog,
    Batch,
    ChangelogFile,
    Run,
    Snapshot,
    SnapshotKind,
    Table,
    Task,
    TaskKind,
    TaskState,
    TaskTrigger,
)
from app.core.table.keys import key_to_json
from app.core.table.option_entries import ChangelogProducer
from app.services.checked_jobs import run_checked
from app.services.commits import Commit, commit_on_current
from app.services.compactions import aligned_runs, changes_wanted, request_due_compaction, sizes_of
from app.services.executor import MergeSite
from app.services.leases import Done, Lease, claim, run_leased
from app.services.lifted_merges import lift_here
from app.services.pages import Page, PageRequest, page_of
from app.services.retries import still_waits
from app.services.small_merges import fold_here
from app.storage.changelogs import read_changelog
from app.storage.distinct_keys import keys_are_distinct
from app.storage.layout import changelog_folder, run_folder, staging_file
from app.storage.named_files import file_of_batch, files_of_run
from app.storage.run_files import sync_runs
from app.storage.runs import read_runs, totals_fit

logger = logging.getLogger(__name__)
MOST_COMPARED_BATCHES: Final = 32  # each file is opened once more; among many batches a key mostly comes twice


def request_due_merges(database: CatalogDatabase, now: datetime | None = None) -> int:
    """Ask for a merge of every table whose staging area is due, all in one step and in the order in which they became
    due; returns how many are due.
    """
    with database.reading() as repository:
        moment = now or repository.now()
        due = [(backlog, found) for backlog in repository.tasks.backlogs() if (found := _due(backlog, moment))]
    due.sort(key=lambda one: one[1].since)
    new = {backlog.table.id: found.trigger for backlog, found in due if not backlog.pending}
    if new:  # a commit wakes every worker
        with database.transaction() as repository:
            repository.tasks.request_all(new)
    return len(due)


def batches_wait(database: CatalogDatabase) -> bool:
    """Whether some table has staged batches that may become due without any further request, and soon: one whose merges
    fail is not worth looking after all the time.
    """
    with database.reading() as repository:
        return repository.tasks.batches_wait()


@dataclass(frozen=True)
class _Due:
    """Why a backlog should be merged, and since when."""

    trigger: TaskTrigger
    since: datetime


def _due(backlog: Backlog, now: datetime) -> _Due | None:
    """Why the backlog should be merged now; a table whose merges fail waits longer each time.

    A time in the future was stored before the clock was set back, and waits no more.
    """
    oldest, newest = backlog.oldest_accepted_at, backlog.newest_accepted_at
    if backlog.batches == 0 or oldest is None or newest is None or still_waits(backlog.failures, now):
        return None
    options, age = backlog.table.schema.parsed, now - oldest
    late: timedelta = age - options["merge.max-staleness"]
    if backlog.records >= options["merge.max-staged-rows"]:
        return _Due(TaskTrigger.ROWS, min(newest, now))
    if age < timedelta(0) or late >= timedelta(0):
        # What failed is due since it may be tried again: it does not push in before what was merged in time.
        return _Due(TaskTrigger.STALENESS, now - late if backlog.failures is None and age >= timedelta(0) else now)
    return None


@dataclass(frozen=True)
class _Folded:
    """What one merge wrote: its runs, the changes if the table keeps a changelog, and the snapshot these changes are
    against (None where they are against none).
    """

    runs: tuple[Run, ...]
    changelog: tuple[ChangelogFile, ...] = ()
    changed: Snapshot | None = None
    records: int = 0


def run_next_merge(site: MergeSite, owner: str) -> bool:
    """Claim the oldest pending merge and run it to its end; whether there was one.

    A failure is recorded with the merge, never raised; its batches stay staged.
    """
    lease = claim(site, owner, TaskKind.MERGE)
    if lease is not None:
        run_merge(lease)
    return lease is not None


def run_merge(lease: Lease) -> None:
    """Run a claimed merge to its end; see ``run_next_merge``."""
    run_leased(lease, lambda claimed, held: _merge(held.site, claimed, held))


def _merge(site: MergeSite, claimed: ClaimedTask, lease: Lease) -> Done:
    """Fold the claimed batches and commit."""
    filled = [batch for batch in claimed.batches if batch.records]
    if not filled:
        with site.database.transaction() as repository:
            repository.leases.finish_merge_without_changes(claimed.task.id, claimed.lease_owner)
        return Done()
    folded = _fold(site, claimed, filled, lease)
    _check_totals(site, claimed, folded.runs, lease)
    _commit_merge(site, claimed, _with_changes(site, claimed, folded, lease), lease)
    return Done(sum(run.rows for run in folded.runs), folded.records)


def _fold(site: MergeSite, claimed: ClaimedTask, batches: Sequence[Batch], lease: Lease) -> _Folded:
    table = claimed.table
    # A folder of its own for every try: a worker that lost its lease may still be writing.
    folder = uuid.uuid4().hex
    job = _job(site, table, batches, folder)
    looks_up = table.schema.parsed["changelog-producer"] is ChangelogProducer.LOOKUP
    lease.expect(2 if looks_up else 1)
    runs = fold_here(lease, job, batches, folder)
    if runs is None:
        runs = lift_here(lease, job, batches, folder)
    if runs is None:
        told = replace(job, distinct_keys=job.plan.lifts and _keys_are_distinct(lease, batches))
        run_checked(lease, told, [file_of_batch(batch) for batch in batches], lease.report)
        runs = read_runs(site.warehouse, table.id, folder, table.schema_id, table.schema)
    else:
        sync_runs(site.warehouse, [(table.id, run) for run in runs])
    lease.end_job()
    if not runs:
        raise Unavailable(
            "Spark wrote files that are not in this worker's warehouse; give both the same KEYFOLD_WAREHOUSE"
        )
    changelog = () if job.input_changelog is None else read_changelog(site.warehouse, table.id, folder)
    return _Folded(runs, changelog, records=job.sizes.rows)


def _keys_are_distinct(lease: Lease, batches: Sequence[Batch]) -> bool:
    """Whether no key comes twice in the batches, as far as it is easily seen; then each record is folded by itself."""
    table = lease.claimed.table
    if len(batches) > MOST_COMPARED_BATCHES or any(batch.schema_id != table.schema_id for batch in batches):
        return False
    try:
        return keys_are_distinct(lease.site.warehouse, batches, table.schema)
    except Exception:  # what is wrong with a file is told by the check before the job
        logger.warning("merge %s goes without comparing keys", lease.claimed.task.id, exc_info=True)
        return False


def fold_for_round(lease: Lease) -> tuple[Run, ...] | None:
    """The runs of a small merge that lacks nothing but to be made durable and committed; None where it needs the
    executor. Raises as ``fold_here``.
    """
    site, claimed, folder = lease.site, lease.claimed, uuid.uuid4().hex
    filled = [batch for batch in claimed.batches if batch.records]
    runs = fold_here(lease, _job(site, claimed.table, filled, folder), filled, folder)
    return runs if runs and _totals_fit(site, claimed, runs) else None


def _job(site: MergeSite, table: Table, batches: Sequence[Batch], folder: str) -> MergeJob:
    options = table.schema.parsed
    keeps_input = options["changelog-producer"] is ChangelogProducer.INPUT
    records, size = sum(batch.records for batch in batches), sum(batch.size_bytes for batch in batches)
    return MergeJob(
        compile_plan(table.schema),
        {site.warehouse.spark_uri(*staging_file(table.id, batch.file)): batch.number for batch in batches},
        FileSizes(records, size, options["target-file-size"]),
        site.warehouse.spark_uri(*run_folder(table.id, folder)),
        int(site.clock()),
        site.warehouse.spark_uri(*changelog_folder(table.id, folder)) if keeps_input else None,
    )


def _with_changes(site: MergeSite, claimed: ClaimedTask, folded: _Folded, lease: Lease) -> _Folded:
    """The merge with the changes of rows that it brings, where the table has them looked up (merge-semantics §8.3)."""
    table = claimed.table
    options = table.schema.parsed
    if options["changelog-producer"] is not ChangelogProducer.LOOKUP:
        return folded
    with site.database.reading() as repository:
        base = repository.snapshots.current(table.id)
    touched = {run.partition for run in folded.runs}
    older = [run for run in (base.runs if base else ()) if run.partition in touched]
    folder = uuid.uuid4().hex
    job = ChangesJob(
        compile_plan(table.schema),
        aligned_runs(site, table, older),
        aligned_runs(site, table, folded.runs),
        sizes_of(options, [*older, *folded.runs]),
        site.warehouse.spark_uri(*changelog_folder(table.id, folder)),
        **changes_wanted(options),
    )
    inputs = [file for run in (*older, *folded.runs) for file in files_of_run(table.id, run)]
    run_checked(lease, job, inputs, lease.report)
    return replace(folded, changelog=read_changelog(site.warehouse, table.id, folder), changed=base)


def _check_totals(site: MergeSite, claimed: ClaimedTask, runs: Sequence[Run], lease: Lease) -> None:
    """Raises ``Conflict`` when a total of the table would leave its column's type (merge-semantics A.7).

    The footers almost always prove that none can; only otherwise are the keys of ``runs`` looked up in the older runs.
    """
    if _totals_fit(site, claimed, runs):
        return
    table, older = claimed.table, _older(claimed, runs)
    plan = compile_plan(table.schema)
    newest = aligned_runs(site, table, runs)
    job = OverflowJob(plan, (*aligned_runs(site, table, older), *newest))
    inputs = [file for run in (*older, *runs) for file in files_of_run(table.id, run)]
    state = run_checked(lease, job, inputs, lease.report_detail)
    if state is not None:
        bounds = next(bounds for bounds in plan.totals if state[bounds.carry] is not None)
        key = tuple(state[name] for name in plan.schema.primary_key)
        endless = state[bounds.carry] == bounds.endless
        raise overflow(bounds.column, key_to_json(plan.schema, key), endless=endless)


def _totals_fit(site: MergeSite, claimed: ClaimedTask, runs: Sequence[Run]) -> bool:
    """Whether footers prove that no total of the table leaves its column's type; false says nothing."""
    totals = compile_plan(claimed.table.schema).totals
    older = _older(claimed, runs)
    return not totals or totals_fit(site.warehouse, claimed.table.id, [*older, *runs], totals)


def _older(claimed: ClaimedTask, runs: Sequence[Run]) -> list[Run]:
    """The runs that may have keys of ``runs``."""
    touched = {run.partition for run in runs}
    return [run for run in (claimed.base.runs if claimed.base else ()) if run.partition in touched]


def _commit_merge(site: MergeSite, claimed: ClaimedTask, folded: _Folded, lease: Lease) -> None:
    """Append the runs to the current snapshot. They were made of no other run, so they fit on whatever was committed
    meanwhile; changes of rows fit as long as only compactions were.
    """

    def prepare(reader: Repository, base: Snapshot | None) -> Commit[Snapshot]:
        _check_base(reader, claimed, folded, base)

        def commit(repository: Repository) -> Snapshot:
            snapshot = repository.leases.commit_merge(
                claimed.task.id,
                claimed.lease_owner,
                (*(base.runs if base else ()), *folded.runs),
                base_snapshot_id=base.id if base else None,
                rows=sum(run.rows for run in folded.runs),
                records=folded.records,
                changelog=folded.changelog,
                detail=lease.detail,
            )
            _check_producer(repository, claimed, snapshot)
            request_due_compaction(repository, claimed.table, snapshot)
            return snapshot

        return commit

    commit_on_current(site.database, claimed.table.id, prepare)


def _check_base(repository: Repository, claimed: ClaimedTask, folded: _Folded, base: Snapshot | None) -> None:
    """Raises ``Conflict`` when the changes were made against rows that are no longer those of ``base``."""
    looked_up = folded.changed.id if folded.changed else 0
    if folded.changed is None or base is None or base.id == looked_up:
        return
    newer = repository.snapshots.page(claimed.table.id, limit=base.id - looked_up)
    if any(one.kind is not SnapshotKind.COMPACTION for one in newer if one.id > looked_up):
        raise Conflict("the table's rows were changed by a rollback or a partition drop; the merge will be tried again")


def _check_producer(repository: Repository, claimed: ClaimedTask, snapshot: Snapshot) -> None:
    """Raises ``Conflict`` when an ALTER meanwhile asks for another changelog than the merge has written."""
    table = claimed.table
    if snapshot.schema_id != table.schema_id:
        schemas = (table.schema, repository.tables.schema_at(table.id, snapshot.schema_id))
        before, after = (schema.parsed["changelog-producer"] for schema in schemas)
        if before is not after:
            raise Conflict("the table's changelog-producer was altered during the merge; it will be tried again")


def request_merge(database: CatalogDatabase, table_id: str) -> Task:
    """Ask for a merge of everything staged now."""
    with database.transaction() as repository:
        return ask_for_merge(repository, table_id)


def ask_for_merge(repository: Repository, table_id: str) -> Task:
    """A merge of everything staged now; one that waits is answered again."""
    return repository.tasks.request(table_id, TaskTrigger.REQUEST)


def list_merges(
    repository: Repository,
    table: Table,
    request: PageRequest,
    state: TaskState | None = None,
    kind: TaskKind | None = None,
) -> Page[Task]:
    """A page of the table's merges and compactions, newest first, of those in ``state`` and of ``kind`` where these are
    given. Raises ``Invalid``.
    """
    found = repository.tasks.page(table.id, after=request.after, limit=request.and_one_more, state=state, kind=kind)
    return page_of(found, request, lambda merge: merge.id)
