"""Commits on the current snapshot: prepared from it, and prepared again if another commit came first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import Conflict, ErrorCode
from app.core.table.history import Snapshot

COMMIT_TRIES = 20
T = TypeVar("T")
Commit = Callable[[Repository], T]


def commit_on_current(
    database: CatalogDatabase, table_id: str, prepare: Callable[[Repository, Snapshot | None], Commit[T] | None]
) -> T | None:
    """Commit on the table's current snapshot. Return the commit's result; None if ``prepare`` returns no commit.

    ``prepare`` reads and the commit writes, each in a separate transaction. If another commit came first, both are
    repeated, up to ``COMMIT_TRIES`` times; then raise ``Conflict``. Other errors are raised unchanged.
    """
    for _ in range(COMMIT_TRIES):
        with database.reading() as repository:
            base = repository.snapshots.current(table_id)
            commit = prepare(repository, base)
        if commit is None:
            return None
        try:
            with database.transaction() as repository:
                return commit(repository)
        except Conflict as error:
            if error.code is not ErrorCode.COMMIT_CONFLICT or not _moved_on(database, table_id, base):
                raise
    raise Conflict(f"{COMMIT_TRIES} other commits of the table came first; retry later")


def _moved_on(database: CatalogDatabase, table_id: str, base: Snapshot | None) -> bool:
    with database.reading() as repository:
        current = repository.snapshots.current(table_id)
    return (current.id if current else None) != (base.id if base else None)
