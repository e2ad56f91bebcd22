"""Sweeps: garbage collection of files that no snapshot and no batch names."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import accumulate

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import NotFound
from app.core.table.calendar import earlier
from app.core.table.history import CHANGELOG_FOLDER, HISTORY_FOLDER, Table
from app.core.table.records import PARTITION_COLUMN
from app.files.folders import REQUESTS_AT_ONCE, Entry, at_once, entries, remove, remove_file
from app.files.layout import (
    TRIAL_PREFIX,
    Warehouse,
    data_file,
    delta_log,
    history_file,
    iceberg_file,
    names_table,
    staging_file,
    table_folder,
)
from app.files.writable import check_not_gone, now_of, reason_of
from app.services.explaining.history import file_histories, move_history
from app.services.publishing.publications import keep_published
from app.services.shared.each_table import faults_kept
from app.services.tables.partitions import expire_partitions
from app.telemetry.entries import Upkeep

logger = logging.getLogger(__name__)
_MOST_SNAPSHOTS = 100_000
_FORGOTTEN_AT_ONCE = 1000
KEYS_KNOWN = timedelta(days=7)
GRACE = timedelta(hours=1)  # younger files may belong to a running merge, or to a reader that began before the commit
# Files of batches that are merged and filed stay this long: only readers may still need them.
FILED_GRACE = timedelta(minutes=10)
# The catalog's clock, which dates merges, and that of the file system may differ by this.
CLOCK_SKEW = timedelta(minutes=5)
CHUNK = 100  # staging files that are removed under one lock of their table
HELD_SECONDS = 10.0  # a sweep that was delayed longer may have lost that lock (PostgreSQL releases it after a minute)
EXPIRED_FILE = "_expired"  # its time is when the last snapshot that named a run was forgotten
PARTITION_FOLDER = f"{PARTITION_COLUMN}="


def sweep(
    database: CatalogDatabase, warehouse: Warehouse, grace: timedelta = GRACE, keys_known: timedelta = KEYS_KNOWN
) -> int:
    """Expire partitions, tags, snapshots, and finished batches and tasks, those with an Idempotency-Key not before
    ``keys_known``. Then remove the files that nothing names and that are older than ``grace``: staging files
    (``FILED_GRACE`` once their batch is filed), runs and changelogs. The age of expired runs counts from their
    expiry. A folder that a running merge may still write to stays.

    Return how many files and folders were removed.
    """
    tables = every_table(database)
    for table in tables:
        with faults_kept(database.metrics, Upkeep.PARTITIONS, table.full_name):
            expire_partitions(database, table)
    keep_published(database, warehouse, tables)
    check_not_gone(warehouse)
    try:
        before = now_of(warehouse) - grace
    except OSError as error:
        logger.warning("the warehouse is swept later: %s", reason_of(error))
        return 0
    expire_snapshots(database, warehouse)
    file_histories(database, warehouse)
    forget_history(database, keys_known)
    removed = 0
    for folder in entries(warehouse, warehouse.path()):
        if folder.is_folder and names_table(folder.name.removeprefix(TRIAL_PREFIX)):
            with faults_kept(database.metrics, Upkeep.SWEEP, folder.name):
                removed += _sweep_table(
                    database, warehouse, folder.name, before, before + grace - min(grace, FILED_GRACE)
                )
    return removed


def expire_snapshots(database: CatalogDatabase, warehouse: Warehouse, now: datetime | None = None) -> None:
    """Remove expired tags, and the snapshots that neither a tag nor the table's ``snapshot.*`` options keep.

    The age of runs that only these named is renewed before the commit. Otherwise the sweep of another worker, or one
    after a crash, could remove them under their readers.
    """
    with database.reading() as repository:
        moment = now or repository.now()
    for table in every_table(database):
        with faults_kept(database.metrics, Upkeep.SNAPSHOTS, table.full_name):
            _expire(database, warehouse, table, moment)


def forget_history(database: CatalogDatabase, keys_known: timedelta, now: datetime | None = None) -> int:
    """Remove finished batches, merges and compactions from the catalog once the retention of their table is over,
    batches with an Idempotency-Key not before ``keys_known``. Return how many. A few are removed at a time, to hold
    the lock shortly.
    """
    with database.reading() as repository:
        moment = now or repository.now()
    forgotten = 0
    for table in every_table(database):
        with faults_kept(database.metrics, Upkeep.HISTORY, table.full_name):
            before = earlier(moment, table.schema.parsed["catalog.history-retained"])
            keyed_before = min(before, moment - keys_known)
            while count := _forget_some(database, table.id, before, keyed_before):
                forgotten += count
    return forgotten


def _forget_some(database: CatalogDatabase, table_id: str, before: datetime, keyed_before: datetime) -> int:
    with database.transaction() as repository:
        batches = repository.batches.forget(table_id, before, keyed_before, _FORGOTTEN_AT_ONCE)
        return batches + repository.tasks.forget(table_id, before, _FORGOTTEN_AT_ONCE)


def every_table(database: CatalogDatabase) -> list[Table]:
    """Return the tables of all databases by name, without those whose rows are damaged."""
    with database.reading() as repository:
        return repository.tables.every_intact()


def _expire(database: CatalogDatabase, warehouse: Warehouse, table: Table, now: datetime) -> None:
    options = table.schema.parsed
    least, most = options["snapshot.num-retained.min"], options["snapshot.num-retained.max"]
    try:
        with database.transaction() as repository:
            repository.tags.expire(table.id, now)
            move_history(repository, table, now)
            newest = repository.snapshots.page(table.id, limit=min(max(least, most), _MOST_SNAPSHOTS))
            # The clock may have been set back between two commits: neither is younger than the later one.
            committed = accumulate((min(now, snapshot.committed_at) for snapshot in newest), min)
            keep = [
                snapshot.id
                for place, (snapshot, at) in enumerate(zip(newest, committed, strict=True))
                if place < least or (place < most and now - at < options["snapshot.time-retained"])
            ]
            named = repository.snapshots.live_run_ids(table.id)
            if newest:
                repository.snapshots.expire(table.id, keep)
            over = sorted(named - repository.snapshots.live_run_ids(table.id))
            at_once(warehouse, lambda run: mark_run(warehouse, *run), over)
    except NotFound:
        return  # dropped meanwhile


def mark_run(warehouse: Warehouse, table_id: str, run_id: str) -> None:
    """Renew the age of the folder of an expired run, so that a sweep leaves readers of its snapshots time to end."""
    try:
        warehouse.filesystem.open_output_stream(warehouse.path(*data_file(table_id, run_id, EXPIRED_FILE))).close()
    except FileNotFoundError:
        return  # a run without rows has no folder
    except OSError:
        logger.warning("the folder of run %s of table %s could not be marked", run_id, table_id, exc_info=True)


@dataclass(frozen=True)
class NamedOfTable:
    """The files of a table in the catalog, and the time since which a running merge or forgetting may be writing files
    that are not in it yet.
    """

    staging_files: set[str]
    run_ids: set[str]
    changelog_folders: set[str]
    history_files: set[str]
    running_since: datetime | None
    dropped: bool = False

    @property
    def run_folders(self) -> set[str]:
        """Folders of the runs. Runs of one merge in several partitions share one: their ids are ``<folder>.<hex>``."""
        return {run_id.split(".", 1)[0] for run_id in self.run_ids}


def named_of_table(database: CatalogDatabase, table_id: str) -> NamedOfTable:
    """Return the files that the catalog now names for a table."""
    with database.reading() as repository:
        if repository.tables.find(table_id) is None:
            return NamedOfTable(set(), set(), set(), set(), None, dropped=True)
        return NamedOfTable(
            repository.batches.live_staging_files(table_id),
            {run for _, run in repository.snapshots.live_run_ids(table_id)},
            {name.split("/", 1)[0] for name in repository.changelogs.live_files(table_id)},
            {file.name for file in repository.history.files(table_id)},
            min(
                filter(
                    None,
                    (repository.tasks.oldest_running_since(table_id), repository.forgettings.pending_since(table_id)),
                ),
                default=None,
            ),
        )


def _sweep_table(
    database: CatalogDatabase, warehouse: Warehouse, table_id: str, before: datetime, filed_before: datetime
) -> int:
    folder = table_folder(table_id)
    staging = entries(warehouse, warehouse.path(*folder, "staging"))
    history = entries(warehouse, warehouse.path(*folder, HISTORY_FOLDER))
    runs = _newest_inside(warehouse, warehouse.path(*folder, "runs"))
    changelogs = _newest_inside(warehouse, warehouse.path(*folder, CHANGELOG_FOLDER))
    # The names are read after the listing, so that new files are either named or not in the list.
    named = named_of_table(database, table_id)
    written_before = before if named.running_since is None else min(before, named.running_since - CLOCK_SKEW)
    aged = _aged(database, table_id, [e for e in staging if e.name not in named.staging_files], before, filed_before)
    unfit = [e.name for e in history if e.name not in named.history_files and _older(e, before)]
    folders = [(("runs", *run), newest) for run, newest in runs.items() if is_garbage_run(run, named)]
    folders += [
        ((CHANGELOG_FOLDER, *changelog), newest)
        for changelog, newest in changelogs.items()
        if len(changelog) == 1 and changelog[0] not in named.changelog_folders
    ]
    garbage = [warehouse.path(*folder, *path) for path, newest in folders if newest < written_before]
    removed = sum(remove(warehouse, path) for path in garbage)
    removed += sum(_remove_files(database, warehouse, table_id, staging_file, chunk) for chunk in _chunks(aged))
    removed += sum(_remove_files(database, warehouse, table_id, history_file, chunk) for chunk in _chunks(unfit))
    root = warehouse.path(*folder)
    if named.dropped:  # the log of a table is removed with the table: its versions expire one by one
        remove(warehouse, warehouse.path(*delta_log(table_id)))
        remove(warehouse, warehouse.path(*iceberg_file(table_id)))
    if named.dropped and all(entry.is_folder for entry in entries(warehouse, root, recursive=True)):
        remove(warehouse, root)
    return removed


def _aged(
    database: CatalogDatabase, table_id: str, unnamed: Sequence[Entry], before: datetime, filed_before: datetime
) -> list[str]:
    """Return the staging files from ``before``, and those of filed batches from ``filed_before``."""
    old = [entry.name for entry in unnamed if _older(entry, before)]
    younger = [entry.name for entry in unnamed if not _older(entry, before) and _older(entry, filed_before)]
    if not younger:
        return old
    with database.reading() as repository:
        return old + sorted(repository.batches.files_of_batches(table_id, younger))


def _chunks(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[start : start + CHUNK] for start in range(0, len(names), CHUNK))


def _remove_files(
    database: CatalogDatabase,
    warehouse: Warehouse,
    table_id: str,
    place: Callable[[str, str], tuple[str, ...]],
    names: Sequence[str],
) -> int:
    """Remove the staging or history files that nothing names, under the table's lock: a delayed POST or sweep may be
    about to name one, and checks under the same lock that it exists. Files that cannot be removed within
    ``HELD_SECONDS`` are left to the next sweep.
    """
    removed = 0
    with database.transaction() as repository:
        began = time.monotonic()
        unnamed = sorted(_UNNAMED[place](repository, table_id, names))
        for start in range(0, len(unnamed), REQUESTS_AT_ONCE):
            if time.monotonic() - began > HELD_SECONDS:
                break
            paths = [warehouse.path(*place(table_id, name)) for name in unnamed[start:][:REQUESTS_AT_ONCE]]
            removed += sum(at_once(warehouse, partial(remove_file, warehouse), paths))
    return removed


_UNNAMED: Mapping[Callable[[str, str], tuple[str, ...]], Callable[[Repository, str, Sequence[str]], set[str]]] = {
    staging_file: lambda repository, table_id, names: repository.batches.unnamed_staging_files(table_id, names),
    history_file: lambda repository, table_id, names: repository.history.unnamed(table_id, names),
}


def _newest_inside(warehouse: Warehouse, root: str) -> dict[tuple[str, ...], datetime]:
    """Return for each folder below ``root`` the newest time of it and of all that it contains: a job may write for
    hours, deep inside it.
    """
    newest: dict[tuple[str, ...], datetime] = {}
    for entry in entries(warehouse, root, recursive=True):
        if entry.changed_at is None:
            continue  # folders of object stores have no time, only the files in them
        segments = tuple(entry.path[len(root) :].strip("/").split("/"))
        folders = len(segments) if entry.is_folder else len(segments) - 1
        for depth in range(1, folders + 1):
            newest[segments[:depth]] = max(entry.changed_at, newest.get(segments[:depth], entry.changed_at))
    return newest


def is_garbage_run(folder: tuple[str, ...], named: NamedOfTable) -> bool:
    """Return whether nothing names the run of a folder, or of a partition's folder inside a named one."""
    if len(folder) == 1:
        return folder[0] not in named.run_folders
    partitioned = len(folder) == 2 and folder[1].startswith(PARTITION_FOLDER) and folder[0] in named.run_folders
    return partitioned and f"{folder[0]}.{folder[1].removeprefix(PARTITION_FOLDER)}" not in named.run_ids


def _older(entry: Entry, before: datetime) -> bool:
    return entry.changed_at is not None and entry.changed_at < before
