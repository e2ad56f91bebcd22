"""Compactions: runs combined by the table's policy or on request, beside its merges, committed by compare-and-swap."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from app.catalog.database import CatalogDatabase
from app.catalog.repository import ClaimedTask, Repository
from app.core.errors import Conflict
from app.core.plan.delta_runs import readable_as
from app.core.plan.evolution import same_fold
from app.core.plan.jobs import ChangesJob, CompactionJob, FileSizes, StoredRun
from app.core.plan.merge_plan import MergePlan, compile_plan
from app.core.table.compaction import CompactionPolicy
from app.core.table.damage import NamedFile
from app.core.table.history import ChangelogFile, Run, Snapshot, Table, Task, TaskKind, TaskTrigger
from app.core.table.option_entries import ChangelogProducer, MergeEngine
from app.core.table.options import TableOptions
from app.services.checked_jobs import run_checked
from app.services.column_compactions import combine_here
from app.services.commits import Commit, commit_on_current
from app.services.delta import waits_for_its_first
from app.services.executor import MergeSite
from app.services.leases import Done, Lease, claim, run_leased
from app.services.retries import still_waits
from app.services.twins import publish
from app.storage.changelogs import read_changelog
from app.storage.layout import changelog_folder, run_folder
from app.storage.named_files import files_of_run
from app.storage.runs import read_runs, stored_files

MOST_ROWS_TOGETHER = 4_000_000  # of partitions that one job compacts side by side


@dataclass(frozen=True)
class Picked:
    """Neighbouring runs of one partition that are combined; ``full``: they are all there is, so nothing older lies
    below.
    """

    runs: tuple[Run, ...]
    full: bool

    @property
    def shape(self) -> tuple[Any, ...]:
        """What must be alike for partitions to be compacted in one job."""
        return (self.full, self.runs[0].full, tuple(run.schema_id for run in self.runs))

    @property
    def rows(self) -> int:
        """State rows in all."""
        return sum(run.rows for run in self.runs)


def ask_for_compaction(repository: Repository, table_id: str, *, full: bool = True) -> Task:
    """A compaction of all runs, or of those that the policy picks; one that waits is answered again."""
    return repository.tasks.request(table_id, TaskTrigger.REQUEST, TaskKind.COMPACTION, full=full)


def request_due_compaction(repository: Repository, table: Table, snapshot: Snapshot) -> None:
    """Ask for a compaction of ``table`` if its options want one after ``snapshot``. Where the last ones failed it is
    put off, longer each time: the next merge, or ``request_failed_compactions``, asks again.
    """
    request_due_compactions(repository, [(table, snapshot)])


def request_due_compactions(repository: Repository, commits: Sequence[tuple[Table, Snapshot]]) -> None:
    """As ``request_due_compaction``, of several tables; whoever calls holds their locks."""
    due = {}
    for table, snapshot in commits:
        full, other = _wants_full(repository, table), other_meanings(repository, table, snapshot)
        if full or pick_runs(table.schema.parsed, snapshot, other, full=False):
            due[table.id] = full
    waits = repository.tasks.pending(due, TaskKind.COMPACTION) if due else set()
    for table_id, full in due.items():
        if table_id in waits and not full:
            continue
        if not still_waits(repository.tasks.failed_compactions(table_id).get(table_id), repository.now()):
            repository.tasks.request(table_id, TaskTrigger.RUNS, TaskKind.COMPACTION, full=full)


def _wants_full(repository: Repository, table: Table) -> bool:
    options = table.schema.parsed
    commits = options["full-compaction.delta-commits"]
    if commits is None and options["changelog-producer"] is ChangelogProducer.FULL_COMPACTION:
        commits = 1  # nobody would see a change otherwise
    full = commits is not None and repository.tables.merges_since_full(table.id) >= commits
    return full or waits_for_its_first(repository, table)


def request_failed_compactions(database: CatalogDatabase) -> None:
    """Ask again for the compactions that have failed and are still due: a table that nobody writes to has no next
    merge.
    """
    with database.reading() as repository:
        failed = repository.tasks.failed_compactions()
    for table_id in failed:
        with database.transaction() as repository:
            table, snapshot = repository.tables.find(table_id), repository.snapshots.current(table_id)
            if table is not None and snapshot is not None:
                request_due_compaction(repository, table, snapshot)


def other_meanings(repository: Repository, table: Table, snapshot: Snapshot) -> frozenset[int]:
    """The ids of the schemas of runs whose state means something else than the table's present one, or which Delta's
    readers would not find their columns in.
    """
    same = readable_as if table.schema.parsed["delta.publish"] else same_fold
    written = {run.schema_id for run in snapshot.runs} - {table.schema_id}
    return frozenset(n for n in written if not same(repository.tables.schema_at(table.id, n), table.schema))


def pick_runs(
    options: TableOptions, snapshot: Snapshot, other: frozenset[int] = frozenset(), *, full: bool
) -> list[Picked]:
    """What to combine in each partition: all of it, or what the policy says.

    Runs of the schemas ``other`` mean something else: only all of them together enter the new meaning as what they
    show, so where the policy takes some it takes all.
    """
    policy = CompactionPolicy.of(options)
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
    """The runs of each partition, oldest first."""
    found: dict[str | None, list[Run]] = {}
    for run in runs:
        found.setdefault(run.partition, []).append(run)
    return list(found.values())


def run_next_compaction(site: MergeSite, owner: str) -> bool:
    """Claim the oldest pending compaction and run it to its end; whether there was one.

    A failure is recorded with it, never raised; it costs speed, never answers.
    """
    lease = claim(site, owner, TaskKind.COMPACTION)
    if lease is not None:
        run_compaction(lease)
    return lease is not None


def run_compaction(lease: Lease) -> None:
    """Run a claimed compaction to its end; see ``run_next_compaction``."""
    run_leased(lease, lambda claimed, held: _compact(held.site, claimed, held))


def _compact(site: MergeSite, claimed: ClaimedTask, lease: Lease) -> Done:
    """One pass over the table's partitions; what became due meanwhile is asked for anew, behind the other tables."""
    table, snapshot, rows = claimed.table, claimed.base, 0
    options = table.schema.parsed
    with site.database.reading() as repository:
        other = other_meanings(repository, table, snapshot) if snapshot else frozenset()
    picked_now = pick_runs(options, snapshot, other, full=claimed.task.full) if snapshot else []
    groups = [*_together(picked_now)]
    lease.expect(sum(1 + _wants_changes(options, picked) for picked in groups))
    left: Sequence[Run] = snapshot.runs if snapshot else ()
    for picked in groups:
        runs, changelog = _combine(site, table, picked, lease)
        left = replaced(left, [[run.id for run in one.runs] for one in picked], runs)
        snapshot = _commit(site, claimed, picked, runs, changelog)
        rows += sum(run.rows for run in runs)
    if not any(_all_of(runs, other) for runs in _partitions(left)):  # it was a full one, whatever was merged meanwhile
        publish(site, table, snapshot)
    with site.database.transaction() as repository:
        number = snapshot.id if snapshot else None
        repository.leases.finish_compaction(
            claimed.task.id, claimed.lease_owner, snapshot_id=number, rows=rows, detail=lease.detail
        )
        if claimed.task.full and claimed.base is not None and snapshot is not None:
            repository.delta.follow_compaction(claimed.base, snapshot, {run.id for run in left})
        if snapshot is not None and rows:
            request_due_compaction(repository, table, snapshot)
    return Done(rows)


def _together(picked: list[Picked]) -> Iterator[list[Picked]]:
    """Partitions of one shape, as many in one job as are small enough."""
    for _, alike in groupby(sorted(picked, key=lambda one: one.shape), key=lambda one: one.shape):
        group: list[Picked] = []
        for one in alike:
            if group and sum(member.rows for member in group) + one.rows > MOST_ROWS_TOGETHER:
                yield group
                group = []
            group.append(one)
        yield group


def _combine(
    site: MergeSite, table: Table, picked: Sequence[Picked], lease: Lease
) -> tuple[tuple[Run, ...], tuple[ChangelogFile, ...]]:
    """The new runs of the picked partitions, and the changes that they bring if the table wants them now."""
    options = table.schema.parsed
    folder = uuid.uuid4().hex
    # Keys of different partitions never meet, so runs of one age are read as one.
    aligned = [stored_run(site, table, runs) for runs in zip(*(one.runs for one in picked), strict=True)]
    inputs = [run for one in picked for run in one.runs]
    job = CompactionJob(
        compile_plan(table.schema),
        tuple(aligned),
        sizes_of(options, inputs),
        site.warehouse.spark_uri(*run_folder(table.id, folder)),
        int(site.clock()),
        picked[0].full,
    )
    told = _wants_changes(options, picked)
    runs = None if told else combine_here(lease, job, [one.runs for one in picked], folder)
    if runs is None:
        run_checked(lease, job, _files(table, picked), lease.report)
        runs = read_runs(site.warehouse, table.id, folder, table.schema_id, table.schema)
    lease.end_job()
    newest = {one.runs[0].partition: max(filter(None, (run.changed_at for run in one.runs))) for one in picked}
    dated = tuple(replace(run, full=picked[0].full, changed_at=newest[run.partition]) for run in runs)
    return dated, _changes(site, table, picked, aligned, lease)


def _files(table: Table, picked: Sequence[Picked]) -> list[NamedFile]:
    return [file for one in picked for run in one.runs for file in files_of_run(table.id, run)]


def _changes(
    site: MergeSite, table: Table, picked: Sequence[Picked], aligned: Sequence[StoredRun], lease: Lease
) -> tuple[ChangelogFile, ...]:
    """What changed since the last full compaction, whose result is the oldest run (merge-semantics §8.4)."""
    options = table.schema.parsed
    if not _wants_changes(options, picked):
        return ()
    known = int(picked[0].runs[0].full)
    folder = uuid.uuid4().hex
    job = ChangesJob(
        compile_plan(table.schema),
        tuple(aligned[:known]),
        tuple(aligned[known:]),
        sizes_of(options, [run for one in picked for run in one.runs]),
        site.warehouse.spark_uri(*changelog_folder(table.id, folder)),
        **changes_wanted(options),
    )
    run_checked(lease, job, _files(table, picked), lease.report)
    lease.end_job()
    return read_changelog(site.warehouse, table.id, folder)


def _wants_changes(options: TableOptions, picked: Sequence[Picked]) -> bool:
    """Whether the compaction of ``picked`` writes a changelog: there is one, and something newer than the last."""
    full = options["changelog-producer"] is ChangelogProducer.FULL_COMPACTION and picked[0].full
    return full and len(picked[0].runs) > int(picked[0].runs[0].full)


def changes_wanted(options: TableOptions) -> dict[str, Any]:
    """Which rows count as changed; of first-row only new ones do (merge-semantics §8.3)."""
    deduplicate = options["changelog-producer.row-deduplicate"] or options.engine is MergeEngine.FIRST_ROW
    ignored = options["changelog-producer.row-deduplicate-ignore-fields"]
    return {"row_deduplicate": deduplicate, "ignored_fields": ignored}


def sizes_of(options: TableOptions, runs: Iterable[Run]) -> FileSizes:
    """How much the files of ``runs`` hold, and how large new ones shall be."""
    read = list(runs)
    return FileSizes(sum(run.rows for run in read), sum(run.size_bytes for run in read), options["target-file-size"])


def aligned_runs(site: MergeSite, table: Table, runs: Iterable[Run]) -> tuple[StoredRun, ...]:
    """The runs, oldest first, and few: keys of different partitions never meet, so runs of different partitions that
    were written under one schema are read as one.
    """
    return tuple(stored_run(site, table, layer) for layer in layers_of(runs))


def layers_of(runs: Iterable[Run]) -> list[list[Run]]:
    """Lists of runs of different partitions and one schema; of each partition the runs keep their order.

    That is the order of the snapshot, not of the schemas: a merge that began before an ALTER may commit after a
    compaction that began behind it.
    """
    layers: list[list[Run]] = []
    next_layer: dict[str | None, int] = {}
    for run in runs:
        first = next_layer.get(run.partition, 0)
        alike = (place for place in range(first, len(layers)) if layers[place][0].schema_id == run.schema_id)
        place = next(alike, len(layers))
        if place == len(layers):
            layers.append([])
        layers[place].append(run)
        next_layer[run.partition] = place + 1
    return layers


def stored_run(site: MergeSite, table: Table, runs: Sequence[Run]) -> StoredRun:
    """Runs of different partitions, written under one schema, as the executor reads them: as one."""
    files = tuple(file for run in runs for file in stored_files(site.warehouse, table.id, run))
    return StoredRun(_plan_of(site, table, runs[0]), files)


def _plan_of(site: MergeSite, table: Table, run: Run) -> MergePlan:
    """The plan under which a run was written."""
    if run.schema_id == table.schema_id:
        return compile_plan(table.schema)
    with site.database.reading() as repository:
        return compile_plan(repository.tables.schema_at(table.id, run.schema_id))


def _commit(
    site: MergeSite,
    claimed: ClaimedTask,
    picked: Sequence[Picked],
    compacted: Sequence[Run],
    changelog: Sequence[ChangelogFile],
) -> Snapshot | None:
    """Put the compacted runs in the place of those they were made of, under whatever was committed meanwhile.

    Raises ``Conflict`` when these are no longer part of the table.
    """

    def prepare(_: Repository, current: Snapshot | None) -> Commit[Snapshot]:
        before = current.runs if current else ()
        runs = replaced(before, [[run.id for run in one.runs] for one in picked], compacted)
        base = current.id if current else None
        return lambda repository: repository.leases.commit_compaction(
            claimed.task.id, claimed.lease_owner, runs, base_snapshot_id=base, changelog=changelog
        )

    return commit_on_current(site.database, claimed.table.id, prepare)


def replaced(runs: Sequence[Run], picked: Sequence[Sequence[str]], compacted: Sequence[Run]) -> list[Run]:
    """``runs`` in which each ``picked`` list of neighbours (by id) gave way to the compacted run of its partition.

    Raises ``Conflict`` when some are gone, or have others between them now.
    """
    place_of = {run.id: place for place, run in enumerate(runs)}
    results = {run.partition: run for run in compacted}
    left: list[Run | None] = list(runs)
    for ids in picked:
        places = [place_of[one] for one in ids if one in place_of]
        if len(places) != len(ids) or not _neighbours(runs, places):
            raise Conflict("the compacted runs are no longer part of the table")
        for place in places:
            left[place] = None
        left[places[0]] = results.get(runs[places[0]].partition)
    return [run for run in left if run is not None]


def _neighbours(runs: Sequence[Run], places: Sequence[int]) -> bool:
    """Whether no run of the same partition lies between those at ``places``, which are in order."""
    partition = runs[places[0]].partition
    between = [place for place in range(places[0], places[-1] + 1) if runs[place].partition == partition]
    return list(places) == between
