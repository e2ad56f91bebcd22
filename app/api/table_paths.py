"""The table that a path names, looked up once per request."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, Request

from app.api.databases import DatabaseName
from app.api.deps import DatabaseDep
from app.api.tables import TableName
from app.core.table.history import Table

TABLE_PATH = "/v1/catalog/databases/{database}/tables/{table}"


def _named_table(database: DatabaseName, table: TableName, catalog: DatabaseDep) -> Table:
    with catalog.reading() as repository:
        return repository.tables.get(database, table)


def location(request: Request, item_id: str) -> str:
    """The ``Location`` of an item of the list that was posted to: the path as it was sent, for it may hold any name."""
    return f"{sent_path(request)}/{item_id}"


def sent_path(request: Request) -> str:
    """The path as it was sent."""
    raw: bytes | None = request.scope.get("raw_path")
    return quote(request.scope["path"]) if raw is None else quote(raw, safe="/%:+@!$&'()*,;=~")


NamedTable = Annotated[Table, Depends(_named_table)]
