"""Suggestions for misspelled names, among those that the token may see."""

from __future__ import annotations

from app.catalog.repository import Repository
from app.core.access import TokenScope
from app.core.hints import MOST_COMPARED, nearest


def nearest_database(repository: Repository, scope: TokenScope, name: str) -> str | None:
    """Return the database whose name is nearest to ``name``; only the first 500 are compared."""
    return nearest(name, repository.databases.names(limit=MOST_COMPARED, among=scope.shown_databases))


def nearest_table(repository: Repository, scope: TokenScope, database: str, name: str) -> str | None:
    """Return the table of ``database`` whose name is nearest to ``name``, as ``nearest_database`` does. Raise
    ``NotFound``.
    """
    known = repository.tables.names(database, limit=MOST_COMPARED, among=scope.shown_tables(database))
    return nearest(name, known)
