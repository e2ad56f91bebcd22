"""Forgotten keys are removed from all files of a table (docs/decisions/0036).

Tasks rewrite files with a key without it. One commit replaces the old files in a new current snapshot, and in all
earlier snapshots.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.catalog.upkeep.forgettings import Replacements
from app.core.errors import KeyfoldError, NotFound
from app.core.table.history import Batch, ChangelogFile, HistoryFile, Run, Snapshot, Table, TaskKind, TaskTrigger
from app.core.table.published import Format
from app.core.table.schema import TableSchema
from app.core.table.upkeep.damage import DamagedFile
from app.core.table.upkeep.forgetting import Forgetting, Remnant, RemnantKind, Sought
from app.services.merging.task_results import TaskFailed
from app.services.shared.damage import noted
from app.services.shared.executor import MergeSite
from app.services.upkeep.rewriting import Rewriting, RewrittenRun
from app.telemetry.entries import Counted, Upkeep

logger = logging.getLogger(__name__)
RETRY_SECONDS = 10.0


class Forgetter:
    """Forgets keys as requested, for one worker. A failure is logged, and retried later; other tables do not wait.

    Several workers may do the same: the first commit wins, and the files of the others are garbage-collected.
    """

    def __init__(
        self,
        site: MergeSite,
        mark: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``mark`` renews the age of the folder of a run (table and run by id) that nothing will name any more."""
        self._site = site
        self._database = site.database
        self._mark = mark
        self._clock = clock
        self._not_before: dict[str, float] = {}

    def forget(self) -> int:
        """Forget the pending keys, as far as possible now. Return the number of tables that are done."""
        with self._database.reading() as repository:
            waiting = repository.forgettings.tables_pending()
        return sum(self._forget_in(table_id) for table_id in waiting)

    def _forget_in(self, table_id: str) -> bool:
        if self._clock() < self._not_before.get(table_id, float("-inf")):
            return False
        try:
            done = _Pass(self._site, table_id, self._mark).run()
        except NotFound:
            done = False  # dropped meanwhile
        except DamagedFile as error:
            self._put_off(table_id, error)
            if noted(self._database, error):
                _note_remnant(self._database, table_id, Remnant(RemnantKind.DAMAGED_FILE, 1, error.file.path))
            return False
        except Exception as error:  # of any kind: other tables do not wait for it
            self._put_off(table_id, error)
            return False
        self._not_before.pop(table_id, None)
        return done

    def _put_off(self, table_id: str, error: Exception) -> None:
        known = isinstance(error, (KeyfoldError, OSError, TaskFailed))
        self._database.metrics.count(Counted.UPKEEP_FAULTS, Upkeep.FORGETTING)
        logger.warning("keys of table %s cannot be forgotten; retried: %s", table_id, error, exc_info=not known)
        self._not_before[table_id] = self._clock() + RETRY_SECONDS


def _note_remnant(database: CatalogDatabase, table_id: str, remnant: Remnant) -> None:
    """Log, once, why the table's keys cannot be forgotten yet."""
    with database.reading() as repository:
        pending = repository.forgettings.pending(table_id)
    if all(list(forgetting.remnants) == [remnant] for forgetting in pending):
        return
    with database.transaction(wakes=False) as repository:
        for forgetting in repository.forgettings.pending(table_id):
            repository.forgettings.note_remnants(forgetting, [remnant])


@dataclass(frozen=True)
class _Named:
    """The table's files that may hold keys of ``pending``, as the catalog names them, and their schemas."""

    table: Table
    pending: Sequence[Forgetting]
    runs: Sequence[Run]
    batches: Sequence[Batch]
    history: Sequence[HistoryFile]
    changelogs: Mapping[int, Sequence[ChangelogFile]]
    schemas: Mapping[int, TableSchema]
    changed_under: Mapping[int, int]


def _named(repository: Repository, table_id: str) -> _Named:
    """Return the files of the table. Raise ``NotFound`` if it was dropped."""
    table = repository.tables.existing(table_id)
    runs = repository.snapshots.every_run(table_id)
    unfiled = repository.history.unfiled(table_id)
    batches = [batch for batch in (*repository.batches.unmerged(table_id), *unfiled) if batch.records]
    history = repository.history.files(table_id)
    changelogs: dict[int, list[ChangelogFile]] = {}
    for number, file in repository.changelogs.every_file(table_id):
        changelogs.setdefault(number, []).append(file)
    under = {
        commit.snapshot_id: commit.schema_id
        for commit in repository.commits.every(table_id)
        if commit.snapshot_id in changelogs
    }
    numbers = (
        {run.schema_id for run in runs}
        | {batch.schema_id for batch in batches}
        | {history_file.schema_id for history_file in history}
    )
    numbers |= set(under.values())
    return _Named(
        table,
        repository.forgettings.pending(table_id),
        runs,
        batches,
        history,
        changelogs,
        {number: repository.tables.schema_at(table_id, number) for number in numbers},
        under,
    )


@dataclass
class _Rewrites:
    """The replacements of the files that the catalog names, by name; None if a file holds no key."""

    runs: dict[str, RewrittenRun | None] = field(default_factory=dict)
    batches: dict[str, Batch | None] = field(default_factory=dict)
    history: dict[str, HistoryFile | None] = field(default_factory=dict)
    changelogs: dict[tuple[int, tuple[str, ...]], list[ChangelogFile] | None] = field(default_factory=dict)

    @property
    def rewritten(self) -> dict[str, Run | None]:
        """The runs that held keys, and their replacements."""
        return {run_id: run.run for run_id, run in self.runs.items() if run is not None}


def _place_of(number: int, files: Sequence[ChangelogFile]) -> tuple[int, tuple[str, ...]]:
    return number, tuple(file.name for file in files)


class _Pass:
    """One pass over the files of a table."""

    def __init__(self, site: MergeSite, table_id: str, mark: Callable[[str, str], None]) -> None:
        self.site, self.database, self.table_id, self.mark = site, site.database, table_id, mark
        self.rewrites = _Rewrites()
        self.ids: tuple[str, ...] = ()

    def run(self) -> bool:
        """Return whether the keys are forgotten. Raise ``DamagedFile`` and ``NotFound``."""
        while True:
            with self.database.reading() as repository:
                running = repository.tasks.running(self.table_id)
                named = None if running else _named(repository, self.table_id)
            if named is None:
                _note_remnant(self.database, self.table_id, Remnant(RemnantKind.TASK, len(running), running[0]))
                return False
            if not named.pending:
                return False
            ids = tuple(forgetting.id for forgetting in named.pending)
            if ids != self.ids:
                self.ids, self.rewrites = ids, _Rewrites()  # more keys were requested since
            self._look(named)
            for run_id in self.rewrites.rewritten:
                self.mark(self.table_id, run_id)
            with self.database.transaction() as repository:
                if self._commit(repository):
                    return True

    def _look(self, named: _Named) -> None:
        """Rewrite files that were not checked before."""
        every, done = Sought.from_forgettings(named.pending), self.rewrites
        rewriting = Rewriting(self.site, named.table, named.schemas)
        runs = [run for run in named.runs if run.id not in done.runs]
        history = [file for file in named.history if file.name not in done.history]
        batches = [batch for batch in named.batches if batch.file not in done.batches]
        changelogs = {n: files for n, files in named.changelogs.items() if _place_of(n, files) not in done.changelogs}
        for run in runs:
            rewriting.add_run(run, every)
        for file in history:
            rewriting.add_history(file, every)
        for number, files in changelogs.items():
            rewriting.add_changes(number, files, named.changed_under[number], every)
        for batch in batches:
            rewriting.add_batch(
                batch,
                Sought.from_forgettings(
                    forgetting for forgetting in named.pending if batch.number <= forgetting.until_batch
                ),
            )
        rewriting.run()
        done.runs |= {run.id: rewriting.run_without(run) for run in runs}
        done.history |= {file.name: rewriting.history_without(file) for file in history}
        done.changelogs |= {_place_of(n, files): rewriting.changes_without(n, files) for n, files in changelogs.items()}
        done.batches |= {batch.file: rewriting.batch_without(batch) for batch in batches}

    def _commit(self, repository: Repository) -> bool:
        """Commit the replacements if every file that the catalog names was checked. Return whether that is so."""
        repository.tables.lock(self.table_id)
        named, rewrites = _named(repository, self.table_id), self.rewrites
        if tuple(forgetting.id for forgetting in named.pending) != self.ids or repository.tasks.running(self.table_id):
            return False
        places = {number: _place_of(number, files) for number, files in named.changelogs.items()}
        known = all(run.id in rewrites.runs for run in named.runs)
        known = known and all(batch.file in rewrites.batches for batch in named.batches)
        known = known and all(file.name in rewrites.history for file in named.history)
        if not known or not all(place in rewrites.changelogs for place in places.values()):
            return False
        by = Replacements(
            {run.id: rewrites.rewritten[run.id] for run in named.runs if run.id in rewrites.rewritten},
            {number: files for number, place in places.items() if (files := rewrites.changelogs[place]) is not None},
            {name: new for file in named.history if (new := rewrites.history[name := file.name]) is not None},
            [one for batch in named.batches if (one := rewrites.batches[batch.file]) is not None],
        )
        self._replace(repository, named, by)
        return True

    def _replace(self, repository: Repository, named: _Named, by: Replacements) -> None:
        forgettings = repository.forgettings
        current = repository.snapshots.current(self.table_id)
        older = forgettings.naming(self.table_id, list(by.runs))
        made = None
        held: set[int] = set()
        if by:
            named_by_versions = repository.published.keeps(self.table_id)
            held = (older | set(by.changelogs)) & named_by_versions
            by = replace(by, changelogs={n: files for n, files in by.changelogs.items() if n not in held})
            runs = [_instead(run, by.runs) for run in (current.runs if current else ())]
            left = [run for run in runs if run is not None]
            made = repository.snapshots.forget_keys(self.table_id, current.id if current else None, left)
            forgettings.replace_runs(self.table_id, by.runs, older - held)
            forgettings.replace_files(self.table_id, by)
        forgettings.blank_texts(self.table_id)
        rows = sum(rewritten_run.removed for rewritten_run in self.rewrites.runs.values() if rewritten_run is not None)
        before = {batch.id: batch.records for batch in named.batches}
        records = sum(before[batch.id] - batch.records for batch in by.batches)
        for forgetting in named.pending:
            forgettings.note_forgotten(forgetting, made.id if made else None, rows, records, held)
        newest = [repository.published.newest(self.table_id, form) for form in Format]
        holding = any(version is not None and version.keeps & held for version in newest)
        if holding:
            repository.tasks.request(self.table_id, TaskTrigger.DELTA, TaskKind.COMPACTION, full=True)
        _log(named, made)


def _instead(run: Run, replaced: Mapping[str, Run | None]) -> Run | None:
    return replaced.get(run.id, run)


def _log(named: _Named, made: Snapshot | None) -> None:
    keys = sum(forgetting.keys for forgetting in named.pending)
    where = f"from snapshot {made.id} on" if made else "no file held them"
    logger.info("%d keys of %s are forgotten, %s", keys, named.table.full_name, where)


@dataclass(frozen=True)
class _Older:
    """Older snapshots with forgotten keys: the numbers that a published version keeps, and the ``free`` snapshots.

    ``changelogs`` are files of free snapshots by number, ``changed_under`` the numbers of their schemas, ``schemas``
    all schemas by number.
    """

    table: Table
    published: Sequence[int]
    free: Sequence[Snapshot]
    changelogs: Mapping[int, Sequence[ChangelogFile]]
    changed_under: Mapping[int, int]
    schemas: Mapping[int, TableSchema]

    def without(
        self, site: MergeSite, sought: Sought
    ) -> tuple[Mapping[str, Run | None], Mapping[int, Sequence[ChangelogFile]]]:
        """Return the rewritten runs by the ids of the old ones, None if no row is left, and the rewritten changelogs by
        the number of their snapshot. Raise ``DamagedFile``.
        """
        runs = {run.id: run for snapshot in self.free for run in snapshot.runs}
        rewriting = Rewriting(site, self.table, self.schemas)
        for run in runs.values():
            rewriting.add_run(run, sought)
        for number, files in self.changelogs.items():
            rewriting.add_changes(number, files, self.changed_under[number], sought)
        rewriting.run()
        new_runs = {run_id: rewriting.run_without(run) for run_id, run in runs.items()}
        new_changes = {number: rewriting.changes_without(number, files) for number, files in self.changelogs.items()}
        return (
            {run_id: new.run for run_id, new in new_runs.items() if new is not None},
            {number: files for number, files in new_changes.items() if files is not None},
        )


def _older(repository: Repository, forgetting: Forgetting) -> _Older:
    """Return the older snapshots that the forgetting still lists. Raise ``NotFound`` if the table was dropped."""
    table_id, published = forgetting.table_id, repository.published.keeps(forgetting.table_id)
    held = {
        commit.snapshot_id: commit
        for commit in repository.commits.every(table_id)
        if commit.snapshot_id in forgetting.held
    }
    free = [repository.snapshots.get(table_id, number) for number in sorted(held.keys() - published)]
    numbers = {run.schema_id for snapshot in free for run in snapshot.runs} | {
        held[snapshot.id].schema_id for snapshot in free
    }
    return _Older(
        repository.tables.existing(table_id),
        sorted(held.keys() & published),
        free,
        {snapshot.id: repository.changelogs.snapshot_files(table_id, snapshot.id) for snapshot in free},
        {snapshot.id: held[snapshot.id].schema_id for snapshot in free},
        {number: repository.tables.schema_at(table_id, number) for number in numbers},
    )


def release(site: MergeSite, forgetting: Forgetting, mark: Callable[[str, str], None]) -> Sequence[int]:
    """Remove the keys from the older snapshots that kept them for other engines, once no published version names their
    files. Return the numbers of snapshots that still do. Raise ``DamagedFile``, and ``NotFound`` if the table was
    dropped.
    """
    table_id, sought = forgetting.table_id, Sought.from_forgettings([forgetting])
    with site.database.reading() as repository:
        older = _older(repository, forgetting)
    runs, changelogs = older.without(site, sought)
    for run_id in runs:
        mark(table_id, run_id)
    if older.published == list(forgetting.held) and not older.free:
        return older.published
    with site.database.transaction() as repository:
        repository.tables.lock(table_id)
        let_go = {snapshot.id for snapshot in older.free} - repository.published.keeps(table_id)
        if runs:
            repository.forgettings.replace_runs(table_id, runs, let_go)
        by_number = {number: files for number, files in changelogs.items() if number in let_go}
        repository.forgettings.replace_files(table_id, Replacements({}, by_number, {}, []))
        repository.forgettings.note_held(forgetting, older.published)
    return older.published
