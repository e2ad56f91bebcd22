"""The page of the name that an address may have meant, where it names what is not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from app.console.parts.trails import Step, trail
from app.console.site.visits import Visit
from app.core.errors import KeyfoldError, NotFound, Resource
from app.services.operating.nearest_names import nearest_database, nearest_table


def nearest_step(visit: Visit, error: KeyfoldError) -> Step | None:
    """Return the nearest name that the visitor may see, and its page; None where nothing is near."""
    finds = _FINDS.get(error.resource_type or "") if isinstance(error, NotFound) else None
    if finds is not None:
        with suppress(KeyfoldError):  # the page says what is wrong also without it
            return finds(visit)
    return None


def nearest_database_step(visit: Visit, name: str) -> Step | None:
    """Return the database whose name is nearest to ``name``, and its page."""
    with visit.parts.database.reading() as repository:
        near = nearest_database(repository, visit.grant.scope, name)
    return None if near is None else trail("", near)[1]


def _database(visit: Visit) -> Step | None:
    return nearest_database_step(visit, visit.names.get("database", ""))


def _table(visit: Visit) -> Step | None:
    database, name = visit.names.get("database", ""), visit.names.get("table", "")
    with visit.parts.database.reading() as repository:
        near = nearest_table(repository, visit.grant.scope, database, name)
    return None if near is None else trail("", database, near)[2]


_FINDS: Final[Mapping[str, Callable[[Visit], Step | None]]] = {
    Resource.DATABASE.value: _database,
    Resource.TABLE.value: _table,
}
