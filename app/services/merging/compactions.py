"""Compactions: runs combined by the table's policy or on request, during its merges, committed by compare-and-swap."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from app.catalog.database import CatalogDatabase
from app.catalog.repository import ClaimedTask, Repository
from app.core.errors import Conflict
from app.core.plan.merging.evolution import same_fold
from app.core.plan.merging.published_runs import readable_as
from app.core.table.compaction import CompactionPolicy
from app.core.table.history import CatalogTask, ChangelogFile, Run, Snapshot, Table, TaskKind, TaskTrigger
from app.core.table.options.entries import ChangelogProducer, MergeEngine
from app.core.table.options.parsed import TableOptions
from app.core.table.published import formats_of
from app.kernel.plan_tasks import changes_written, runs_written
from app.kernel.tasks import Result, Task
from app.services.merging.leases import Done, Lease, run_leased
from app.services.merging.task_results import plan_of, run_tasks
from app.services.publishing.publications import waits_for_its_first
from app.services.shared.commits import Commit, commit_on_current
from app.services.shared.each_table import faults_kept
from app.services.shared.executor import MergeSite
from app.services.shared.retries import time_left
from app.storage.runs.runs import check_written
from app.telemetry.entries import Upkeep

# One job compacts partitions of at most this many rows, and one commit replaces them.
MOST_ROWS_TOGETHER = 4_000_000


@dataclass(frozen=True)
class Picked:
    """Neighbouring runs of one partition that are combined; ``full``: these are all runs of the partition, so there is
    no older one.
    """

    runs: tuple[Run, ...]
    full: bool

    @property
    def changed_at(self) -> datetime | None:
        """Return when the newest of their records was merged."""
        return max(filter(None, (run.changed_at for run in self.runs)))

    @property
    def rows(self) -> int:
        """State rows in all."""
        return sum(run.rows for run in self.runs)


def ask_for_compaction(repository: Repository, table_id: str, *, full: bool = True) -> CatalogTask:
    """Return a compaction of all runs, or of those that the policy picks; a pending one is returned again."""
    return repository.tasks.request(table_id, TaskTrigger.REQUEST, TaskKind.COMPACTION, full=full)


def request_due_compaction(repository: Repository, table: Table, snapshot: Snapshot) -> None:
    """Request a compaction of ``table`` if its options require one after ``snapshot``. After failures it is postponed,
    longer each time: the next merge, or ``request_failed_compactions``, requests it again.
    """
    request_due_compactions(repository, [(table, snapshot)])


def request_due_compactions(repository: Repository, commits: Sequence[tuple[Table, Snapshot]]) -> None:
    """Request the compactions that are due of several tables; the caller holds their locks."""
    due = {}
    for table, snapshot in commits:
        full, other = _wants_full(repository, table), other_meanings(repository, table, snapshot)
        if full or pick_runs(table.schema.parsed, snapshot, other, full=False):
            due[table.id] = full
    if not due:
        return
    failures, now = repository.tasks.failed_compactions(due), repository.now()
    begin = [table_id for table_id in due if not time_left(failures.get(table_id), now)]
    full_ones = {table_id for table_id in begin if due[table_id]}
    repository.tasks.request_all(dict.fromkeys(begin, TaskTrigger.RUNS), TaskKind.COMPACTION, full=full_ones)


def _wants_full(repository: Repository, table: Table) -> bool:
    options = table.schema.parsed
    commits = options["full-compaction.delta-commits"]
    if commits is None and options["changelog-producer"] is ChangelogProducer.FULL_COMPACTION:
        commits = 1  # otherwise no changelog would have the changes
    full = commits is not None and repository.tables.merges_since_full(table.id) >= commits
    return full or waits_for_its_first(repository, table)


def request_failed_compactions(database: CatalogDatabase) -> None:
    """Request failed compactions that are still due: a table without new batches has no next merge that would."""
    with database.reading() as repository:
        failed = repository.tasks.failed_compactions()
    for table_id in failed:
        with faults_kept(database.metrics, Upkeep.COMPACTIONS, table_id), database.transaction() as repository:
            table, snapshot = repository.tables.find(table_id), repository.snapshots.current(table_id)
            if table is not None and snapshot is not None:
                request_due_compaction(repository, table, snapshot)


def other_meanings(repository: Repository, table: Table, snapshot: Snapshot) -> frozenset[int]:
    """Return the ids of schemas whose runs have another meaning under the table's present schema, or in which other
    engines would not find their columns.
    """
    same = readable_as if formats_of(table.schema) else same_fold
    written = {run.schema_id for run in snapshot.runs} - {table.schema_id}
    return frozenset(n for n in written if not same(repository.tables.schema_at(table.id, n), table.schema))


def pick_runs(
    options: TableOptions, snapshot: Snapshot, other: frozenset[int] = frozenset(), *, full: bool
) -> list[Picked]:
    """Return the runs to combine in each partition: all if ``full``, otherwise those that the policy picks.

    Runs of the schemas ``other`` have another meaning, and are converted to the new one only all together. So if the
    policy picks one of them, all are taken.
    """
    policy = CompactionPolicy.from_options(options)
    picked = []
    for runs in _partitions(snapshot.runs):
        count = _all_of(runs, other) if full else policy.pick([run.size_bytes for run in runs])
        if count and any(run.schema_id in other for run in runs[len(runs) - count :]):
            count = len(runs)
        if count:
            picked.append(Picked(tuple(runs[len(runs) - count :]), full=count == len(runs)))
    return picked


def _all_of(runs: Sequence[Run], other: frozenset[int]) -> int:
    done = len(runs) == 1 and runs[0].full and runs[0].schema_id not in other
    return 0 if done else len(runs)


def _partitions(runs: Iterable[Run]) -> list[list[Run]]:
    """Return the runs of each partition, oldest first."""
    by_partition: dict[str | None, list[Run]] = {}
    for run in runs:
        by_partition.setdefault(run.partition, []).append(run)
    return list(by_partition.values())


def run_compaction(lease: Lease) -> None:
    """Run a claimed compaction to its end. A failure is recorded with it, never raised: without compaction lookups are
    slower, but correct.
    """
    run_leased(lease, lambda claimed, held: _compact(held.site, claimed, held))


def _compact(site: MergeSite, claimed: ClaimedTask, lease: Lease) -> Done:
    """Make one pass over the table's partitions; compactions that became due meanwhile are requested, and queue behind
    other tables.
    """
    compaction = Compaction.from_claim(site, claimed)
    lease.expect(len(compaction.steps))
    for picked in compaction.steps:
        planned = plan_step(site, claimed, picked)
        compaction.commit(planned, run_tasks(lease, planned.tasks, lease.report), lease)
        lease.end_job()
    return compaction.done(lease)


@dataclass
class Compaction:
    """A claimed compaction: its steps, each a commit, and its outcome so far."""

    site: MergeSite
    claimed: ClaimedTask
    other: frozenset[int]
    steps: Sequence[Sequence[Picked]]
    left: Sequence[Run] = ()
    snapshot: Snapshot | None = None
    rows: int = 0

    @classmethod
    def from_claim(cls, site: MergeSite, claimed: ClaimedTask) -> Compaction:
        """Return the work of a claimed compaction."""
        table, base = claimed.table, claimed.base
        with site.database.reading() as repository:
            other = other_meanings(repository, table, base) if base else frozenset()
        picked = pick_runs(table.schema.parsed, base, other, full=claimed.task.full) if base else []
        return cls(site, claimed, other, [*_together(picked)], base.runs if base else (), base)

    def commit(self, planned: PlannedStep, results: Sequence[Result], lease: Lease) -> None:
        """Replace the runs of a step with the runs that its tasks have written. The last step ends the compaction."""
        picked, table = planned.picked, self.claimed.table
        before = {picked_runs.runs[0].partition: picked_runs for picked_runs in picked}
        runs = tuple(
            replace(run, full=before[run.partition].full, changed_at=before[run.partition].changed_at)
            for run in runs_written(planned.output, table.schema_id, results)
        )
        check_written(self.site.warehouse, table.id, runs)
        self.left = replaced(self.left, [[run.id for run in picked_runs.runs] for picked_runs in picked], runs)
        self.rows += sum(run.rows for run in runs)
        self.snapshot = self._committed(planned, runs, changes_written(results), lease)

    def _committed(
        self, planned: PlannedStep, compacted: Sequence[Run], changelog: Sequence[ChangelogFile], lease: Lease
    ) -> Snapshot | None:
        """Replace the compacted runs in the current snapshot, which may be newer than the one that was read.

        Raise ``Conflict`` if these are no longer part of the table.
        """
        claimed, picked = self.claimed, planned.picked

        def prepare(_: Repository, current: Snapshot | None) -> Commit[Snapshot]:
            before = current.runs if current else ()
            runs = replaced(before, [[run.id for run in picked_runs.runs] for picked_runs in picked], compacted)

            def commit(repository: Repository) -> Snapshot:
                base = current.id if current else None
                snapshot = repository.claimed_tasks.commit_compaction(
                    claimed.task.id, claimed.lease_owner, runs, base_snapshot_id=base, changelog=changelog
                )
                if changelog:  # after the ALTER its changes would follow newer ones
                    check_producer(repository, claimed, snapshot)
                if picked is self.steps[-1]:
                    self._finish(repository, snapshot, lease)
                return snapshot

            return commit

        return commit_on_current(self.site.database, claimed.table.id, prepare)

    def done(self, lease: Lease) -> Done:
        """Return the outcome that the compaction has committed. A compaction without a step ends here."""
        if not self.steps:
            with self.site.database.transaction() as repository:
                self._finish(repository, self.snapshot, lease)
        return Done(self.rows)

    def _finish(self, repository: Repository, snapshot: Snapshot | None, lease: Lease) -> None:
        """Record that the compaction is done, and request those that are due now."""
        claimed = self.claimed
        number = snapshot.id if snapshot else None
        repository.claimed_tasks.finish_compaction(
            claimed.task.id, claimed.lease_owner, snapshot_id=number, rows=self.rows, detail=lease.detail
        )
        if claimed.task.full and claimed.base is not None and snapshot is not None:
            repository.published.follow_compaction(claimed.base, snapshot, {run.id for run in self.left})
        if snapshot is not None and self.rows:
            request_due_compaction(repository, claimed.table, snapshot)


def _together(picked: Sequence[Picked]) -> Iterator[list[Picked]]:
    """Return partitions that are compacted in one step: as many as are small enough."""
    group: list[Picked] = []
    for picked_runs in picked:
        if group and sum(member.rows for member in group) + picked_runs.rows > MOST_ROWS_TOGETHER:
            yield group
            group = []
        group.append(picked_runs)
    if group:
        yield group


@dataclass(frozen=True)
class PlannedStep:
    """A step of a compaction: the partitions, the folder of their new runs, and the tasks."""

    picked: Sequence[Picked]
    output: str
    tasks: Sequence[Task]


def plan_step(site: MergeSite, claimed: ClaimedTask, picked: Sequence[Picked]) -> PlannedStep:
    """Return the tasks that compact the picked runs, and write their changes if the table keeps a changelog."""
    table = claimed.table
    plan = plan_of(site, table, {run.schema_id for picked_runs in picked for run in picked_runs.runs})
    output, wanted = uuid.uuid4().hex, changes_wanted(table.schema.parsed)
    tasks: list[Task] = []
    for picked_runs in picked:
        tasks += plan.compaction(picked_runs.runs, output, oldest=picked_runs.full)
        if _wants_changes(table.schema.parsed, picked_runs):  # since the last full one, whose result is the oldest run
            tasks += plan.changes(
                picked_runs.runs, len(picked_runs.runs) - int(picked_runs.runs[0].full), output, wanted
            )
    return PlannedStep(picked, output, tasks)


def _wants_changes(options: TableOptions, picked: Picked) -> bool:
    """Return whether a compaction of ``picked`` writes a changelog: the table has one, and records newer than the
    last.
    """
    full = options["changelog-producer"] is ChangelogProducer.FULL_COMPACTION and picked.full
    return full and len(picked.runs) > int(picked.runs[0].full)


def changes_wanted(options: TableOptions) -> dict[str, Any]:
    """Return which rows count as changed; with first-row only new ones do."""
    deduplicate = options["changelog-producer.row-deduplicate"] or options.engine is MergeEngine.FIRST_ROW
    ignored = options["changelog-producer.row-deduplicate-ignore-fields"]
    return {"row_deduplicate": deduplicate, "ignored_fields": ignored}


def check_producer(repository: Repository, claimed: ClaimedTask, snapshot: Snapshot) -> None:
    """Raise ``Conflict`` if an ALTER has since set another changelog producer than the task used."""
    table = claimed.table
    if snapshot.schema_id != table.schema_id:
        schemas = (table.schema, repository.tables.schema_at(table.id, snapshot.schema_id))
        before, after = (schema.parsed["changelog-producer"] for schema in schemas)
        if before is not after:
            raise Conflict(
                f"the table's changelog-producer was altered during the {claimed.task.kind}; it will be retried"
            )


def replaced(runs: Sequence[Run], picked: Sequence[Sequence[str]], compacted: Sequence[Run]) -> list[Run]:
    """Return ``runs`` with each ``picked`` list of neighbours (by id) replaced by the compacted run of its partition.

    Raise ``Conflict`` if some are gone, or are no longer neighbours.
    """
    place_of = {run.id: place for place, run in enumerate(runs)}
    results = {run.partition: run for run in compacted}
    left: list[Run | None] = list(runs)
    for ids in picked:
        places = [place_of[run_id] for run_id in ids if run_id in place_of]
        if len(places) != len(ids) or not _neighbours(runs, places):
            raise Conflict("the compacted runs are no longer part of the table")
        for place in places:
            left[place] = None
        left[places[0]] = results.get(runs[places[0]].partition)
    return [run for run in left if run is not None]


def _neighbours(runs: Sequence[Run], places: Sequence[int]) -> bool:
    """Return whether no run of the same partition lies between those at ``places``, which are in order."""
    partition = runs[places[0]].partition
    between = [place for place in range(places[0], places[-1] + 1) if runs[place].partition == partition]
    return list(places) == between
