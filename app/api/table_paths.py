"""The table that a path names, looked up once per request."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from app.api.databases import DatabaseName
from app.api.deps import DatabaseDep
from app.api.tables import TableName
from app.core.table import Table

TABLE_PATH = "/v1/catalog/databases/{database}/tables/{table}"


def _named_table(database: DatabaseName, table: TableName, catalog: DatabaseDep) -> Table:
    with catalog.reading() as repository:
        return repository.get_table(database, table)


NamedTable = Annotated[Table, Depends(_named_table)]
