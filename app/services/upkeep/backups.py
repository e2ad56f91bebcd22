"""Backups: the catalog at one moment with all files that it names, taken while the service runs, and restored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from app.catalog.database import CatalogDatabase
from app.catalog.dumps import dump, load
from app.core.errors import Conflict, Invalid, Unavailable
from app.core.table.upkeep.damage import DamagedFile, NamedFile
from app.files.folders import entries
from app.files.layout import Warehouse
from app.files.writable import reason_of
from app.services.shared.damage import named_files
from app.storage.backup_folder import BackupFolder, BackupHead, add_files, write_dump

_TRIES = 5
_NAME = "%Y%m%dT%H%M%S%fZ"
Progress = Callable[[str], None]
"""Called for each file that was copied, with its path."""


@dataclass
class Backup:
    """A finished backup: ``copied`` of its ``files`` are new; ``damaged`` ones are in no backup."""

    name: str
    files: int
    copied: int = 0
    copied_bytes: int = 0
    damaged: list[DamagedFile] = field(default_factory=list)


class _RemovedError(Exception):
    """A file was merged or expired, and garbage-collected, while others were copied."""


def back_up(
    database: CatalogDatabase,
    warehouse: Warehouse,
    target: BackupFolder,
    version: str,
    progress: Progress,
    keep: int | None = None,
) -> Backup:
    """Return a new backup in ``target``; files that earlier ones have are not copied again. Then delete the oldest
    backups beyond ``keep``.

    Damaged and missing files are left out and reported. Raise ``Conflict`` if another backup into ``target`` runs,
    ``Unavailable`` if the catalog does not answer, or files are garbage-collected faster than they are copied.
    """
    with target.alone():
        backup = _tried(database, warehouse, target, version, progress)
        if keep is not None:
            target.forget_all_but(keep)
    return backup


def _tried(
    database: CatalogDatabase, warehouse: Warehouse, target: BackupFolder, version: str, progress: Progress
) -> Backup:
    for _ in range(_TRIES):
        try:
            return _back_up(database, warehouse, target, version, progress)
        except _RemovedError:
            continue  # nearly all files are copied by now, so that the next attempt is fast
    raise Unavailable("files expire faster than they are copied; set snapshot.time-retained higher, or retry")


def _back_up(
    database: CatalogDatabase, warehouse: Warehouse, target: BackupFolder, version: str, progress: Progress
) -> Backup:
    name = datetime.now(UTC).strftime(_NAME)
    with target.writing(name) as path:
        with database.reading() as repository:
            files = [file for table_id in repository.tables.every_id() for file in named_files(repository, table_id)]
            head = BackupHead(name, version, database.revision_in(repository))
            write_dump(path, head, dump(repository.transaction))
        backup = Backup(name, len(files))
        for file in files:
            if not target.has(file):
                _keep(database, warehouse, target, file, backup)
                progress(file.path)
        lost = {error.file.path for error in backup.damaged}
        add_files(path, [file for file in files if file.path not in lost])
    with database.transaction(wakes=False) as repository:
        repository.tokens.backed_up()
    return backup


def _keep(
    database: CatalogDatabase, warehouse: Warehouse, target: BackupFolder, file: NamedFile, backup: Backup
) -> None:
    try:
        target.keep(warehouse, file)
    except DamagedFile as error:
        if error.missing and not _is_needed(database, file):
            raise _RemovedError from error
        backup.damaged.append(error)
        return
    backup.copied += 1
    backup.copied_bytes += file.size_bytes


def _is_needed(database: CatalogDatabase, file: NamedFile) -> bool:
    with database.reading() as repository:
        return repository.damage.is_needed(file)


def restore(
    source: BackupFolder, name: str | None, database: CatalogDatabase, warehouse: Warehouse, progress: Progress
) -> BackupHead:
    """Restore the backup ``name`` (by default the newest) into an empty warehouse and a new catalog, and migrate the
    catalog to this version.

    Raise ``Conflict`` if either holds anything, ``Invalid`` if the backup is incomplete, ``Unavailable`` if
    the warehouse cannot be written.
    """
    names = source.names()
    if not names:
        raise Invalid(f"{source.path} has no backup; name the folder that keyfold backup wrote to")
    head = source.head(name or names[-1])
    _check_empty(database, warehouse)
    if warehouse.local:
        Path(warehouse.path()).mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in source.files_of(head.name):
        try:
            source.put_back(file, warehouse)
        except OSError as error:
            raise Unavailable(
                f"{file.path} cannot be restored: {reason_of(error)}; empty the target, then restore again"
            ) from error
        progress(file.path)
    # The catalog comes last, so that all files that it names exist.
    database.migrate(head.revision)
    with database.transaction() as repository:
        load(repository.transaction, source.dump_of(head.name))
    database.migrate()
    with database.transaction() as repository:
        repository.published.mark_unwritten()  # no part of a backup: the catalog says all that they hold
    return head


def _check_empty(database: CatalogDatabase, warehouse: Warehouse) -> None:
    if not (warehouse.local or warehouse.is_store):
        raise Invalid("a backup is put back into a folder or a bucket (s3://…); copy it to the warehouse from there")
    if database.revision() is not None:
        raise Conflict("the catalog is not empty; restore into a new data folder, or a new database")
    if entries(warehouse, warehouse.path()):
        raise Conflict(f"{warehouse.uri()} is not empty; restore into a new data folder, or under a new prefix")
