"""Damage: the handling of files that the catalog names and that are missing or damaged (docs/damage.md)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import KeyfoldError, Unavailable
from app.core.table.history import DataFile, Table
from app.core.table.upkeep.damage import Damage, DamagedFile, NamedFile
from app.files.named_files import file_of_batch, file_of_changelog, file_of_history, file_of_run, files_of_run
from app.services.shared.pages import Page, PageRequest, page_of

logger = logging.getLogger(__name__)
Read = TypeVar("Read")
_TRIES = 3


class Moved(Unavailable):
    """The catalog has changed since it was read, and later reads do not match the earlier ones."""


def read_again(read: Callable[[], Read]) -> Read:
    """Return the result of ``read``, which reads the catalog and then files.

    A missing file may belong to a batch that was merged or withdrawn, and garbage-collected, between the two: then
    both are repeated. Raise ``DamagedFile`` if the catalog still names the file, and ``Moved`` after too many repeats.
    """
    for _ in range(_TRIES - 1):
        try:
            return read()
        except Moved:
            continue
        except DamagedFile as error:
            if not error.missing:
                raise
    return read()


def failure_of(database: CatalogDatabase, error: DamagedFile) -> KeyfoldError:
    """Return the failure to report after ``error``: the damage, which is recorded, or that the file was removed
    meanwhile.
    """
    try:
        if not noted(database, error) and error.missing:
            message = f"{error.file.path} was removed while it was read: no snapshot needs it any more"
            return Unavailable(f"{message}; repeat the request")
    except KeyfoldError:
        logger.warning("damage could not be recorded: %s", error, exc_info=True)
    return error


def noted(database: CatalogDatabase, error: DamagedFile) -> bool:
    """Return whether the catalog still needs the file. If it does, record the damage."""
    with database.reading() as repository:
        needed = repository.damage.is_needed(error.file)
        known = repository.damage.is_recorded(error)
    if needed and not known:
        note(database, [error])
    return needed


def note(database: CatalogDatabase, errors: Sequence[DamagedFile]) -> None:
    """Store the damage in the catalog, where ``list_damage`` reads it, and log it."""
    for error in errors:
        logger.error("%s", error.message)
    with database.transaction(wakes=False) as repository:
        repository.damage.note(errors)


def list_damage(repository: Repository, table: Table, request: PageRequest) -> Page[Damage]:
    """Return a page of the known damage of the table's files, by path."""
    damages = repository.damage.page(table.id, after=request.after, limit=request.and_one_more)
    return page_of(damages, request, lambda damage: damage.path)


def named_files(repository: Repository, table_id: str) -> list[NamedFile]:
    """Return every file of the table that the catalog names: of staged batches, of the runs and changes of all
    snapshots, of history.
    """
    return [
        *map(file_of_batch, repository.batches.unmerged(table_id)),
        *_history(repository, table_id),
        *(file for run in repository.snapshots.every_run(table_id) for file in files_of_run(table_id, run)),
        *(file_of_changelog(table_id, number, file) for number, file in repository.changelogs.every_file(table_id)),
    ]


def data_files(repository: Repository, table_id: str) -> dict[str, DataFile]:
    """Return the data files of the table in the catalog, by path."""
    runs = repository.snapshots.every_run(table_id)
    return {file_of_run(table_id, run.id, file).path: file for run in runs for file in run.files}


def _history(repository: Repository, table_id: str) -> list[NamedFile]:
    table = repository.tables.find(table_id)
    if table is None or not table.schema.parsed["history.time-retained"]:
        return []  # what the catalog still names is removed by the next sweep
    unfiled = map(file_of_batch, repository.history.unfiled(table_id))
    return [*unfiled, *(file_of_history(table_id, file) for file in repository.history.files(table_id))]
