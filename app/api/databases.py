"""Routes of databases, as in Paimon's REST catalog."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import unquote, unquote_plus

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from app.api.catalog_config import PREFIX
from app.api.deps import Reading, WarehouseDep, Writing
from app.api.paging import PageSize, PageToken
from app.api.payloads import ChangedDatabase, DatabaseChanges, DatabaseDetails, DatabaseNames, NewDatabase
from app.api.problems import PROBLEM_RESPONSES
from app.services import databases as service
from app.services.databases import PageRequest

# Paimon's clients send POST bodies without a Content-Type, which FastAPI would not read otherwise.
router = APIRouter(
    prefix=f"/v1/{PREFIX}/databases", tags=["databases"], responses=PROBLEM_RESPONSES, strict_content_type=False
)

_NAMES = re.compile(
    rf"/v1/{PREFIX}/databases/(?P<database>[^/]+)(?:/tables/(?P<table>[^/]+)"
    r"(?:/(?:tags|snapshots)/(?P<version>[^/]+))?)?"
)


def named(request: Request, noun: str, routed: str) -> str:
    """The name of a database, table or version in the path; ``routed`` is what the router made of it.

    Paimon's clients encode path segments like form fields: a ``+`` is a space, a plus is ``%2B``. The router's path is
    decoded and has lost the difference, so this reads the path as it was sent. (A name that is sent with ``%20`` for a
    space reads the same either way.) A name cannot hold a slash: where ``%2F`` was sent, the router's reading stands.
    """
    raw: bytes | None = request.scope.get("raw_path")
    match = _NAMES.search(raw.decode("latin-1")) if raw is not None else None
    sent = match[noun] if match else None
    return unquote_plus(sent) if sent is not None and unquote(sent) == routed else routed


def _database(request: Request, database: Annotated[str, Path(description="A `+` means a space.")]) -> str:
    return named(request, "database", database)


DatabaseName = Annotated[str, Depends(_database)]
DatabasePattern = Annotated[
    str | None, Query(alias="databaseNamePattern", description="SQL LIKE: `%`, `_`, and a backslash to escape them.")
]


@router.get("", operation_id="listDatabases")
def list_databases(
    repository: Reading, size: PageSize, page_token: PageToken = None, pattern: DatabasePattern = None
) -> DatabaseNames:
    """Database names in order, a page at a time."""
    page = service.list_databases(repository, PageRequest(size, page_token, pattern))
    return DatabaseNames(databases=[item.name for item in page.items], next_page_token=page.next_token)


@router.post("", operation_id="createDatabase")
def create_database(body: NewDatabase, repository: Writing, warehouse: WarehouseDep) -> DatabaseDetails:
    """Creates a database."""
    database = service.create_database(repository, body.name, body.options or {})
    return DatabaseDetails.of(database, warehouse.uri())


@router.get("/{database}", operation_id="getDatabase")
def get_database(database: DatabaseName, repository: Reading, warehouse: WarehouseDep) -> DatabaseDetails:
    """A database and its options."""
    return DatabaseDetails.of(service.get_database(repository, database), warehouse.uri())


@router.post("/{database}", operation_id="alterDatabase")
def alter_database(database: DatabaseName, body: DatabaseChanges, repository: Writing) -> ChangedDatabase:
    """Removes and sets options of a database."""
    change = service.alter_database(repository, database, body.removals or [], body.updates or {})
    return ChangedDatabase(removed=[*change.removed], updated=[*change.updated], missing=[*change.missing])


@router.delete("/{database}", operation_id="dropDatabase", response_class=Response)
def drop_database(database: DatabaseName, repository: Writing) -> Response:
    """Drops an empty database; 409 while it has tables."""
    service.drop_database(repository, database)
    return Response()
