"""Routes of tables, as in Paimon's REST catalog."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response

from app.api.audit import NotesDep
from app.api.deps import BoundsDep, GrantDep, Parts, PartsDep, Reading, WarehouseDep, Writing, in_writers_thread
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
from app.api.twins import Details
from app.core.access import Role
from app.core.errors import FaultCode, Invalid, Violation
from app.core.plan.table_warnings import table_warnings
from app.core.table.history import Table
from app.core.table.schema import TableSchema
from app.services import drops
from app.services import tables as service

# Paimon's clients send POST bodies without a Content-Type, which FastAPI would not read otherwise.
router = APIRouter(prefix=CATALOG_PATH, tags=["tables"], responses=PROBLEM_RESPONSES, strict_content_type=False)


TablePattern = Annotated[str | None, name_pattern("tableNamePattern")]
TableType = Annotated[str | None, Query(alias="tableType", description="Paimon's type; all tables here are `table`.")]
ValidateOnly = Annotated[
    bool, Query(alias="validateOnly", description="Checks name, schema and options; stores nothing.")
]


def _stored(table: Table, warehouse: WarehouseDep) -> StoredTable:
    location = service.location_of(warehouse, table)
    return StoredTable.of(table, path=location, warnings=table_warnings(table.schema))


def _validated(schema: TableSchema) -> Validated:
    return Validated.of(None, violations=[], warnings=table_warnings(schema))


class _Asking:
    """Who asks to define a table, within which bounds, and whether only to be told what is wrong."""

    def __init__(
        self, grant: GrantDep, notes: NotesDep, bounds: BoundsDep, validate_only: ValidateOnly = False
    ) -> None:
        self.grant, self.notes, self.bounds, self.validate_only = grant, notes, bounds, validate_only


Asking = Annotated[_Asking, Depends()]


@router.get("/databases/{database}/tables", operation_id="listTables")
def list_tables(
    database: DatabaseName,
    wanted: WantedPage,
    repository: Reading,
    grant: GrantDep,
    pattern: TablePattern = None,
    table_type: TableType = None,
) -> TableNames:
    """The names of the tables that the token is for, in order, a page at a time."""
    shown = grant.scope.shown_tables(database)
    return TableNames.of(service.list_tables(repository, database, wanted, pattern, table_type, shown))


# Unset members stay away: Paimon's Java client reads a null description or default as the text "null".
@router.get("/databases/{database}/table-details", operation_id="listTableDetails", response_model_exclude_unset=True)
def list_table_details(
    database: DatabaseName,
    wanted: WantedPage,
    repository: Reading,
    details: Details,
    grant: GrantDep,
    pattern: TablePattern = None,
    table_type: TableType = None,
) -> TableDetailsPage:
    """The tables that the token is for, in name order, a page at a time."""
    shown = grant.scope.shown_tables(database)
    names = service.list_tables(repository, database, wanted, pattern, table_type, shown)
    page = service.detailed(repository, database, names)
    return TableDetailsPage.of(page, table_details=[details.of(table) for table in page.items])


@router.post("/databases/{database}/tables", operation_id="createTable", response_model_exclude_unset=True)
async def create_table(
    database: DatabaseName,
    body: NewTable,
    parts: PartsDep,
    asking: Asking,
) -> StoredTable | Validated:
    """Creates a table, or tells every fault of its name, schema and options."""
    _check_same_database(database, body.identifier.database)
    return await in_writers_thread(parts, _created, parts, database, body, asking)


def _created(parts: Parts, database: str, body: NewTable, asking: _Asking) -> StoredTable | Validated:
    grant, notes, bounds, validate_only = asking.grant, asking.notes, asking.bounds, asking.validate_only
    name = body.identifier.object
    grant.check_table(Role.READ if validate_only else Role.ADMIN, database, name)
    if validate_only:
        notes.nothing()
        return _validated(service.validate_table(name, body.table_schema, bounds.table))
    options = body.table_schema.get("options")
    notes.tell(table=name, options=sorted(options) if isinstance(options, dict) else [])
    created = service.create_table(parts.database, database, name, body.table_schema, grant.name, bounds)
    return _stored(created, parts.warehouse)


def _check_same_database(in_path: str, in_body: str) -> None:
    if in_body != in_path:
        message = f"the path names the database {in_path!r}, the identifier {in_body!r}"
        fault = Violation("/identifier/database", FaultCode.CONTRADICTING_DATABASE, message, f"send {in_path!r} here")
        raise Invalid(message, violations=[fault])


@router.get("/databases/{database}/tables/{table}", operation_id="getTable", response_model_exclude_unset=True)
def get_table(table: ReadTable, details: Details) -> TableDetails:
    """A table and its schema."""
    return details.of(table)


@router.get("/tables/id/{table_id}", operation_id="getTableById", response_model_exclude_unset=True)
def get_table_by_id(table_id: str, repository: Reading, details: Details, grant: GrantDep) -> TableDetails:
    """A table by its id, whatever its name is now."""
    table = service.get_table_by_id(repository, table_id)
    grant.check_table(Role.READ, table.database, table.name)
    return details.of(table)


@router.post("/databases/{database}/tables/{table}", operation_id="alterTable", response_model_exclude_unset=True)
async def alter_table(
    name: FullName,
    body: AlterTable,
    parts: PartsDep,
    asking: Asking,
) -> StoredTable | Validated:
    """Changes a table's columns, options and comments, in order, all or nothing.

    409 while batches are staged that the new schema would fold differently: merge them first.
    """
    return await in_writers_thread(parts, _altered, parts, name, body, asking)


def _altered(parts: Parts, name: tuple[str, str], body: AlterTable, asking: _Asking) -> StoredTable | Validated:
    grant, validate_only = asking.grant, asking.validate_only
    grant.check_table(Role.READ if validate_only else Role.ADMIN, *name)
    altered = service.alter_table(
        parts.database, name, body.changes, validate_only=validate_only, by=grant.name, bounds=asking.bounds.table
    )
    if validate_only:
        asking.notes.nothing()
        return _validated(altered.schema)
    asking.notes.tell(changes=[_what(change) for change in body.changes])
    return _stored(altered, parts.warehouse)


def _what(change: Any) -> dict[str, object]:
    """What a change that was made is about, without the values that it sets."""
    return {member: change[member] for member in ("action", "key", "fieldNames") if member in change}


@router.delete("/databases/{database}/tables/{table}", operation_id="dropTable", response_class=Response)
async def drop_table(name: FullName, parts: PartsDep) -> Response:
    """Drops a table, its rows and its files."""
    await in_writers_thread(parts, drops.drop_table, parts.database, parts.warehouse, name)
    return Response()


@router.post("/tables/rename", operation_id="renameTable", response_class=Response)
def rename_table(body: RenameTable, repository: Writing, grant: GrantDep, notes: NotesDep) -> Response:
    """Renames a table, maybe into another database; the token must be for it under both names."""
    source, destination = body.source, body.destination
    for identifier in (source, destination):
        grant.check_table(Role.ADMIN, identifier.database, identifier.object)
    old, new = ((one.database, one.object) for one in (source, destination))
    service.rename_table(repository, old, new, grant.name)
    notes.tell(database=old[0], table=old[1], to={"database": new[0], "table": new[1]})
    return Response()
