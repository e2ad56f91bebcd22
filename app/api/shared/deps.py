"""Dependencies of handlers: the parts that the lifespan opened, each as an ``Annotated`` alias."""

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


def inline(dependency: Callable[..., Made]) -> Callable[..., Coroutine[Any, Any, Made]]:
    """Return a class as a dependency that needs no thread: it only stores its arguments."""

    async def made(**given: Any) -> Made:
        return dependency(**given)

    made.__signature__ = signature(dependency, eval_str=True)  # type: ignore[attr-defined]  # where FastAPI reads parameters
    return made


def parts_of(request: Request) -> Parts:
    """Return the parts that the lifespan put on the application."""
    parts: Parts = request.app.state.parts
    return parts


# Async: FastAPI would start a thread for each of these to read one attribute. None has further dependencies,
# which would be solved again for each.
async def _parts(request: Request) -> Parts:
    return parts_of(request)


async def _settings(request: Request) -> Settings:
    return parts_of(request).settings


async def _database(request: Request) -> CatalogDatabase:
    return parts_of(request).database


async def _warehouse(request: Request) -> Warehouse:
    return parts_of(request).warehouse


async def _images(request: Request) -> Images:
    return parts_of(request).images


async def _grant(request: Request) -> Grant:
    grant: Grant = request.scope[GRANT]
    return grant


async def _bounds(request: Request) -> CatalogBounds:
    return parts_of(request).settings.catalog_bounds


async def _heads(request: Request) -> Heads:
    return parts_of(request).heads


PartsDep = Annotated[Parts, Depends(_parts)]
SettingsDep = Annotated[Settings, Depends(_settings)]
DatabaseDep = Annotated[CatalogDatabase, Depends(_database)]
WarehouseDep = Annotated[Warehouse, Depends(_warehouse)]
ImagesDep = Annotated[Images, Depends(_images)]
GrantDep = Annotated[Grant, Depends(_grant)]
BoundsDep = Annotated[CatalogBounds, Depends(_bounds)]
HeadsDep = Annotated[Heads, Depends(_heads)]
