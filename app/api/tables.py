"""Routes of tables, as in Paimon's REST catalog."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from app.api.deps import Parts, PartsDep, Reading, WarehouseDep, Writing, in_writers_thread
from app.api.paging import WantedPage, name_pattern
from app.api.paths import CATALOG_PATH, DatabaseName, FullName, ReadTable
from app.api.payloads import (
    NewTable,
    RenameTable,
    StoredTable,
    TableDetails,
    TableDetailsPage,
    TableNames,
    Validated,
)
from app.api.problems import PROBLEM_RESPONSES
from app.api.schema_changes import AlterTable
from app.core.errors import FaultCode, Invalid, Violation
from app.core.plan.table_warnings import table_warnings
from app.core.table.history import Table
from app.core.table.schema import TableSchema
from app.services import tables as service

# Paimon's clients send POST bodies without a Content-Type, which FastAPI would not read otherwise.
router = APIRouter(prefix=CATALOG_PATH, tags=["tables"], responses=PROBLEM_RESPONSES, strict_content_type=False)


TablePattern = Annotated[str | None, name_pattern("tableNamePattern")]
TableType = Annotated[str | None, Query(alias="tableType", description="Paimon's type; all tables here are `table`.")]
ValidateOnly = Annotated[
    bool, Query(alias="validateOnly", description="Checks name, schema and options; stores nothing.")
]


def _details(table: Table, warehouse: WarehouseDep) -> TableDetails:
    return TableDetails.of(table, path=service.location_of(warehouse, table))


def _stored(table: Table, warehouse: WarehouseDep) -> StoredTable:
    location = service.location_of(warehouse, table)
    return StoredTable.of(table, path=location, warnings=table_warnings(table.schema))


def _validated(schema: TableSchema) -> Validated:
    return Validated.of(None, violations=[], warnings=table_warnings(schema))


@router.get("/databases/{database}/tables", operation_id="listTables")
def list_tables(
    database: DatabaseName,
    wanted: WantedPage,
    repository: Reading,
    pattern: TablePattern = None,
    table_type: TableType = None,
) -> TableNames:
    """Table names in order, a page at a time."""
    return TableNames.of(service.list_tables(repository, database, wanted, pattern, table_type))


# Unset members stay away: Paimon's Java client reads a null description or default as the text "null".
@router.get("/databases/{database}/table-details", operation_id="listTableDetails", response_model_exclude_unset=True)
def list_table_details(
    database: DatabaseName,
    wanted: WantedPage,
    repository: Reading,
    warehouse: WarehouseDep,
    pattern: TablePattern = None,
    table_type: TableType = None,
) -> TableDetailsPage:
    """Tables in name order, a page at a time."""
    page = service.list_tables(repository, database, wanted, pattern, table_type)
    return TableDetailsPage.of(page, table_details=[_details(table, warehouse) for table in page.items])


@router.post("/databases/{database}/tables", operation_id="createTable", response_model_exclude_unset=True)
async def create_table(
    database: DatabaseName, body: NewTable, parts: PartsDep, validate_only: ValidateOnly = False
) -> StoredTable | Validated:
    """Creates a table, or tells every fault of its name, schema and options."""
    _check_same_database(database, body.identifier.database)
    return await in_writers_thread(parts, _created, parts, database, body, validate_only=validate_only)


def _created(parts: Parts, database: str, body: NewTable, *, validate_only: bool) -> StoredTable | Validated:
    name = body.identifier.object
    if validate_only:
        return _validated(service.validate_table(name, body.table_schema))
    return _stored(service.create_table(parts.database, database, name, body.table_schema), parts.warehouse)


def _check_same_database(in_path: str, in_body: str) -> None:
    if in_body != in_path:
        message = f"the path names the database {in_path!r}, the identifier {in_body!r}"
        fault = Violation("/identifier/database", FaultCode.CONTRADICTING_DATABASE, message, f"send {in_path!r} here")
        raise Invalid(message, violations=[fault])


@router.get("/databases/{database}/tables/{table}", operation_id="getTable", response_model_exclude_unset=True)
def get_table(table: ReadTable, warehouse: WarehouseDep) -> TableDetails:
    """A table and its schema."""
    return _details(table, warehouse)


@router.get("/tables/id/{table_id}", operation_id="getTableById", response_model_exclude_unset=True)
def get_table_by_id(table_id: str, repository: Reading, warehouse: WarehouseDep) -> TableDetails:
    """A table by its id, whatever its name is now."""
    return _details(service.get_table_by_id(repository, table_id), warehouse)


@router.post("/databases/{database}/tables/{table}", operation_id="alterTable", response_model_exclude_unset=True)
async def alter_table(
    name: FullName, body: AlterTable, parts: PartsDep, validate_only: ValidateOnly = False
) -> StoredTable | Validated:
    """Changes a table's columns, options and comments, in order, all or nothing.

    409 while batches are staged that the new schema would fold differently: merge them first.
    """
    return await in_writers_thread(parts, _altered, parts, name, body, validate_only=validate_only)


def _altered(parts: Parts, name: tuple[str, str], body: AlterTable, *, validate_only: bool) -> StoredTable | Validated:
    altered = service.alter_table(parts.database, name, body.changes, validate_only=validate_only)
    return _validated(altered.schema) if validate_only else _stored(altered, parts.warehouse)


@router.delete("/databases/{database}/tables/{table}", operation_id="dropTable", response_class=Response)
async def drop_table(name: FullName, parts: PartsDep) -> Response:
    """Drops a table, its rows and its files."""
    await in_writers_thread(parts, service.drop_table, parts.database, parts.warehouse, name)
    return Response()


@router.post("/tables/rename", operation_id="renameTable", response_class=Response)
def rename_table(body: RenameTable, repository: Writing) -> Response:
    """Renames a table, maybe into another database."""
    source, destination = body.source, body.destination
    service.rename_table(repository, (source.database, source.object), (destination.database, destination.object))
    return Response()
