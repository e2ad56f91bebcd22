"""Sweeps: files that no snapshot and no batch names are garbage and are removed (design §2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from pyarrow import fs

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import NotFound
from app.core.options import parse_options
from app.core.table import Database, Table
from app.storage.layout import Warehouse, table_folder

_PAGE = 500
_MOST_SNAPSHOTS = 100_000
_Named = TypeVar("_Named", Database, Table)
GRACE = timedelta(hours=1)  # younger files may belong to a merge under way or to a reader that began before the commit


def sweep(database: CatalogDatabase, warehouse: Warehouse, grace: timedelta = GRACE) -> int:
    """Expire snapshots, then remove staging files and runs that nobody names and that are older than ``grace``.

    Returns how many files and folders were removed.
    """
    expire_snapshots(database)
    before = datetime.now(UTC) - grace
    removed = 0
    for folder in _entries(warehouse, warehouse.path()):
        if folder.type is fs.FileType.Directory:
            removed += _sweep_table(database, warehouse, folder.base_name, before)
    return removed


def expire_snapshots(database: CatalogDatabase, now: datetime | None = None) -> int:
    """Forget the snapshots that their tables' ``snapshot.*`` options no longer keep; returns how many."""
    moment = now or datetime.now(UTC)
    with database.reading() as repository:
        tables = [table for name in _all_databases(repository) for table in _all_tables(repository, name)]
    return sum(_expire(database, table, moment) for table in tables)


def _all_tables(repository: Repository, database: str) -> list[Table]:
    return list(_pages(lambda after: repository.list_tables(database, after=after, limit=_PAGE)))


def _all_databases(repository: Repository) -> list[str]:
    pages = _pages(lambda after: repository.list_databases(after=after, limit=_PAGE))
    return [database.name for database in pages]


def _pages(page: Callable[[str | None], Sequence[_Named]]) -> Iterator[_Named]:
    after: str | None = None
    while found := page(after):
        yield from found
        after = found[-1].name


def _expire(database: CatalogDatabase, table: Table, now: datetime) -> int:
    options, _ = parse_options(table.schema)
    least, most = options["snapshot.num-retained.min"], options["snapshot.num-retained.max"]
    try:
        with database.transaction() as repository:
            newest = repository.list_snapshots(table.id, limit=min(max(least, most), _MOST_SNAPSHOTS))
            keep = [
                snapshot.id
                for place, snapshot in enumerate(newest)
                if place < least or (place < most and snapshot.committed_at > now - options["snapshot.time-retained"])
            ]
            return len(repository.expire_snapshots(table.id, keep)) if newest else 0
    except NotFound:
        return 0  # dropped meanwhile


def _entries(warehouse: Warehouse, path: str) -> list[fs.FileInfo]:
    entries: list[fs.FileInfo] = warehouse.filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
    return entries


def _sweep_table(database: CatalogDatabase, warehouse: Warehouse, table_id: str, before: datetime) -> int:
    staging = _entries(warehouse, warehouse.path(*table_folder(table_id), "staging"))
    runs = _entries(warehouse, warehouse.path(*table_folder(table_id), "runs"))
    # Named files are read after the listing: what is accepted in between is not in the list.
    with database.reading() as repository:
        known = repository.get_table_by_id(table_id) is not None
        files = repository.live_staging_files(table_id) if known else set()
        live_runs = {run for table, run in repository.live_run_ids() if table == table_id}
    garbage = [entry for entry in staging if entry.base_name not in files and _older(entry, before)]
    garbage += [entry for entry in runs if entry.base_name not in live_runs and _older(entry, before)]
    return sum(_remove(warehouse, entry) for entry in garbage)


def _remove(warehouse: Warehouse, entry: fs.FileInfo) -> bool:
    """Whether the entry was still there; workers may sweep at the same time."""
    try:
        if entry.type is fs.FileType.Directory:
            warehouse.filesystem.delete_dir(entry.path)
        else:
            warehouse.filesystem.delete_file(entry.path)
    except FileNotFoundError:
        return False
    return True


def _older(entry: fs.FileInfo, before: datetime) -> bool:
    return entry.mtime is not None and entry.mtime < before
