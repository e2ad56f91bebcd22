"""What handlers ask for, each as an ``Annotated`` alias: the parts that the lifespan opened, a transaction, the table
that the path names.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from inspect import signature
from typing import Annotated, Any, TypeVar

from anyio import CancelScope, CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import Depends, Request

from app.api.shared.paths import DatabaseName, TableName, sent_name
from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.access import Grant
from app.core.table.history import Table
from app.core.table.schema_bounds import CatalogBounds
from app.files.layout import Warehouse
from app.http.parts import GRANT, Parts, in_writers_thread
from app.services.rows.lookups import Images
from app.services.snapshots.heads import Heads
from app.settings import Settings

__all__ = ["GRANT", "Parts", "in_writers_thread"]


Made = TypeVar("Made")


def inline(of: Callable[..., Made]) -> Callable[..., Coroutine[Any, Any, Made]]:
    """Return a class as a dependency that needs no thread: it only keeps what it is given."""

    async def made(**given: Any) -> Made:
        return of(**given)

    made.__signature__ = signature(of, eval_str=True)  # type: ignore[attr-defined]  # where FastAPI reads parameters
    return made


# Async, for FastAPI would start a thread for each of these to read one attribute.
async def get_parts(request: Request) -> Parts:
    """Return the parts that the lifespan put on the application."""
    parts: Parts = request.app.state.parts
    return parts


PartsDep = Annotated[Parts, Depends(get_parts)]


async def _settings(parts: PartsDep) -> Settings:
    return parts.settings


async def _database(parts: PartsDep) -> CatalogDatabase:
    return parts.database


async def _warehouse(parts: PartsDep) -> Warehouse:
    return parts.warehouse


async def _images(parts: PartsDep) -> Images:
    return parts.images


async def _grant(request: Request) -> Grant:
    grant: Grant = request.scope[GRANT]
    return grant


async def _bounds(parts: PartsDep) -> CatalogBounds:
    return parts.settings.catalog_bounds


async def _heads(parts: PartsDep) -> Heads:
    return parts.heads


async def _writing(parts: PartsDep) -> AsyncIterator[Repository]:
    transaction = parts.database.transaction()
    repository = await in_writers_thread(parts, transaction.__enter__)
    # Who is about to commit or roll back holds what others wait for: it needs a thread in any case.
    limiter = CapacityLimiter(1)
    try:
        yield repository
    except BaseException as error:
        with CancelScope(shield=True):
            swallowed = await run_sync(transaction.__exit__, type(error), error, error.__traceback__, limiter=limiter)
        if not swallowed:
            raise
    else:
        with CancelScope(shield=True):
            await run_sync(transaction.__exit__, None, None, None, limiter=limiter)


def _reading(parts: PartsDep, request: Request) -> Iterator[Repository]:
    with parts.database.reading() as repository:
        names = request.path_params
        if "table" in names:  # another dependency needs a thread, which costs more than to read it
            database, table = (sent_name(request.scope, noun, names[noun]) for noun in ("database", "table"))
            request.state.table = repository.tables.get(database, table)
        yield repository


SettingsDep = Annotated[Settings, Depends(_settings)]
DatabaseDep = Annotated[CatalogDatabase, Depends(_database)]
WarehouseDep = Annotated[Warehouse, Depends(_warehouse)]
ImagesDep = Annotated[Images, Depends(_images)]
GrantDep = Annotated[Grant, Depends(_grant)]
BoundsDep = Annotated[CatalogBounds, Depends(_bounds)]
HeadsDep = Annotated[Heads, Depends(_heads)]
# Function scope: the transaction ends before the response is sent, so a 2xx never precedes its commit.
Writing = Annotated[Repository, Depends(_writing, scope="function")]
Reading = Annotated[Repository, Depends(_reading, scope="function")]


async def _read_table(
    _: Reading,
    database: DatabaseName,  # noqa: ARG001  # the parameters of the path, for the document
    table: TableName,  # noqa: ARG001
    request: Request,
) -> Table:
    found: Table = request.state.table
    return found


def _written_table(database: DatabaseName, table: TableName, repository: Writing) -> Table:
    return repository.tables.get(database, table)


# The table as the handler's ``Reading`` or ``Writing`` sees it: FastAPI gives both of them the same repository.
ReadTable = Annotated[Table, Depends(_read_table)]
WrittenTable = Annotated[Table, Depends(_written_table)]
