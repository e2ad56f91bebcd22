"""Sweeps: files that no snapshot and no batch names are garbage and are removed (design §2)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyarrow import fs

from app.catalog.database import CatalogDatabase
from app.storage.layout import Warehouse, table_folder

GRACE = timedelta(hours=1)  # younger files may belong to a merge under way or to a reader that began before the commit


def sweep(database: CatalogDatabase, warehouse: Warehouse, grace: timedelta = GRACE) -> int:
    """Remove staging files and runs that nobody names and that are older than ``grace``; returns how many."""
    before = datetime.now(UTC) - grace
    removed = 0
    for folder in _entries(warehouse, warehouse.path()):
        if folder.type is fs.FileType.Directory:
            removed += _sweep_table(database, warehouse, folder.base_name, before)
    return removed


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
