"""What handlers ask for of the parts that the lifespan opened, each as an ``Annotated`` alias."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from inspect import signature
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from app.catalog.database import CatalogDatabase
from app.core.access import Grant
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


SettingsDep = Annotated[Settings, Depends(_settings)]
DatabaseDep = Annotated[CatalogDatabase, Depends(_database)]
WarehouseDep = Annotated[Warehouse, Depends(_warehouse)]
ImagesDep = Annotated[Images, Depends(_images)]
GrantDep = Annotated[Grant, Depends(_grant)]
BoundsDep = Annotated[CatalogBounds, Depends(_bounds)]
HeadsDep = Annotated[Heads, Depends(_heads)]
