"""What handlers ask for: the parts that the lifespan opened, each as an ``Annotated`` alias."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated

from anyio import CancelScope, CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import Depends, Request

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.access import Grant
from app.core.table.schema_bounds import CatalogBounds
from app.files.layout import Warehouse
from app.http.parts import GRANT, Parts, in_writers_thread
from app.services.rows.lookups import Images
from app.services.snapshots.heads import Heads
from app.settings import Settings

__all__ = ["GRANT", "Parts", "in_writers_thread"]


# Async, for FastAPI would give each of these a thread of its own to read one attribute in.
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


def _reading(parts: PartsDep) -> Iterator[Repository]:
    with parts.database.reading() as repository:
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
