"""The names in a path: databases, tables, tags, versions."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import quote, unquote, unquote_plus

from fastapi import Depends, Path, Request
from starlette.types import Scope

from app.http.iceberg_clients import ICEBERG_PATH

# The prefix that /v1/config answers; Paimon's clients put it into every path.
PREFIX = "catalog"
CATALOG_PATH = f"/v1/{PREFIX}"
DATABASES_PATH = f"{CATALOG_PATH}/databases"
TABLES_PATH = f"{DATABASES_PATH}/{{database}}/tables"
TABLE_PATH = f"{TABLES_PATH}/{{table}}"
TABLES_BATCHES_PATH = f"{DATABASES_PATH}/{{database}}/batches"

_NAMES = re.compile(
    rf"(?:{DATABASES_PATH}|{ICEBERG_PATH}/namespaces)/(?P<database>[^/]+)(?:/tables/(?P<table>[^/]+)"
    r"(?:/(?:tags|snapshots)/(?P<version>[^/]+))?)?"
)


def sent_name(scope: Scope, noun: str, routed: str) -> str:
    """Return the name of a database, table or version in the path; ``routed`` is the router's decoded value.

    Paimon's clients, and Iceberg's in Java, encode path segments like form fields: a ``+`` is a space, a plus is
    ``%2B``. The router's decoded path has lost the difference, so this reads the original path. (A space sent as
    ``%20`` reads the same either way.) A name cannot contain a slash: if ``%2F`` was sent, the router's value is
    returned.
    """
    raw: bytes | None = scope.get("raw_path")
    match = _NAMES.search(raw.decode("latin-1")) if raw is not None else None
    sent = match[noun] if match else None
    return unquote_plus(sent) if sent is not None and unquote(sent) == routed else routed


Segment = Annotated[str, Path(description="A `+` means a space.")]


async def _database(request: Request, database: Segment) -> str:
    return sent_name(request.scope, "database", database)


async def _tag(request: Request, tag: Segment) -> str:
    return sent_name(request.scope, "version", tag)


async def _version(
    request: Request, version: Annotated[str, Path(description="a number, EARLIEST, LATEST, or a tag")]
) -> str:
    return sent_name(request.scope, "version", version)


DatabaseName = Annotated[str, Depends(_database)]
TagName = Annotated[str, Depends(_tag)]
VersionName = Annotated[str, Depends(_version)]


async def _full_name(request: Request, database: Segment, table: Segment) -> tuple[str, str]:
    return sent_name(request.scope, "database", database), sent_name(request.scope, "table", table)


# For services that open their transactions, and read the table in one of them.
FullName = Annotated[tuple[str, str], Depends(_full_name)]


def location(request: Request, item_id: str) -> str:
    """Return the ``Location`` of an item that was posted to a list, below the path as it was sent."""
    return f"{sent_path(request)}/{item_id}"


def batch_location(request: Request, batch_id: str) -> str:
    """Return the ``Location`` of a batch; the request's path is that of the table, or below it."""
    table = "/".join(sent_path(request).split("/")[: TABLE_PATH.count("/") + 1])
    return f"{table}/batches/{batch_id}"


def sent_path(request: Request) -> str:
    """Return the path as it was sent."""
    raw: bytes | None = request.scope.get("raw_path")
    return quote(request.scope["path"]) if raw is None else quote(raw, safe="/%:+@!$&'()*,;=~")
