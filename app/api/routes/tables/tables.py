"""Routes of tables, as in Paimon's REST catalog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Response
from fastapi.concurrency import run_in_threadpool

from app.api.document.payloads import (
    NewTable,
    NumberedSchema,
    RenameTable,
    StoredTable,
    TableDetails,
    TableDetailsPage,
    TableNames,
    Validated,
)
from app.api.middleware.audit import NotesDep
from app.api.middleware.conditions import IfMatch, table_etag, unchanged
from app.api.middleware.routing import Router
from app.api.routes.tables.schema_changes import AlterTable
from app.api.shared.deps import BoundsDep, GrantDep, Parts, PartsDep, WarehouseDep, in_writers_thread, inline
from app.api.shared.json_bodies import JsonRoute
from app.api.shared.paging import WantedPage, name_pattern
from app.api.shared.paimon_clients import TABLE_OPTIONS, PaimonClient
from app.api.shared.paths import CATALOG_PATH, DatabaseName, FullName
from app.api.shared.problems import PROBLEM_RESPONSES, problems
from app.api.shared.transactions import Reading, TableDep, Writing
from app.core.access import Grant, Role
from app.core.errors import FaultCode, Invalid, Violation
from app.core.plan.explaining.table_warnings import table_warnings
from app.core.table.history import Table
from app.core.table.schema_bounds import CatalogBounds
from app.services.tables import drops
from app.services.tables import tables as service

# Paimon's clients send POST bodies without a Content-Type, which FastAPI would not read otherwise.
router = Router(
    route_class=JsonRoute, prefix=CATALOG_PATH, tags=["tables"], responses=PROBLEM_RESPONSES, strict_content_type=False
)


TablePattern = Annotated[str | None, name_pattern("tableNamePattern")]
TableType = Annotated[str | None, Query(alias="tableType", description="Paimon's type; all tables here are `table`.")]
# Not in the OpenAPI document, where each operation has one answer: there the validating operations are documented.
ValidateOnly = Annotated[bool, Query(alias="validateOnly", include_in_schema=False)]


def _stored(table: Table, warehouse: WarehouseDep) -> StoredTable:
    location = service.location_of(warehouse, table)
    return StoredTable.from_value(table, path=location, warnings=table_warnings(table.schema))


def validated(warnings: Sequence[Violation]) -> Validated:
    """Return the answer of a valid request."""
    return Validated.from_value(None, violations=[], warnings=warnings)


def in_place_of(answer: Validated) -> Response:
    """Return ``answer`` for ``?validateOnly=true`` on a route whose document shows another one."""
    return Response(answer.model_dump_json(by_alias=True), media_type="application/json")


class _Asking:
    """A request that defines a table: its caller, the bounds, and whether it is only validated."""

    def __init__(
        self, grant: GrantDep, notes: NotesDep, bounds: BoundsDep, validate_only: ValidateOnly = False
    ) -> None:
        self.grant, self.notes, self.bounds, self.validate_only = grant, notes, bounds, validate_only


Asking = Annotated[_Asking, Depends(inline(_Asking))]


class _Details:
    """Answers with tables in the form that the client reads."""

    def __init__(self, warehouse: WarehouseDep, paimon: PaimonClient) -> None:
        self.warehouse, self.paimon = warehouse, paimon

    def answer(self, table: Table) -> TableDetails:
        """Return one table. For Paimon's clients an option makes them request access before they read."""
        plain = TableDetails.from_value(table, path=service.location_of(self.warehouse, table))
        if not self.paimon:
            return plain
        schema = plain.table_schema
        for_paimon = schema.model_copy(update={"options": {**schema.options, **TABLE_OPTIONS}})
        return plain.model_copy(update={"table_schema": for_paimon})


Details = Annotated[_Details, Depends(inline(_Details))]


@router.get("/databases/{database}/tables", operation_id="listTables")
def list_tables(
    database: DatabaseName,
    wanted: WantedPage,
    repository: Reading,
    grant: GrantDep,
    pattern: TablePattern = None,
    table_type: TableType = None,
) -> TableNames:
    """List the names of the tables in the token's scope, in order, a page at a time."""
    shown = grant.scope.shown_tables(database)
    return TableNames.from_value(service.list_tables(repository, database, wanted, pattern, table_type, shown))


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
    """List the tables in the token's scope, in name order, a page at a time."""
    shown = grant.scope.shown_tables(database)
    names = service.list_tables(repository, database, wanted, pattern, table_type, shown)
    page = service.detailed(repository, database, names)
    return TableDetailsPage.from_value(page, table_details=[details.answer(table) for table in page.items])


@router.post(
    "/databases/{database}/tables",
    operation_id="createTable",
    response_model=StoredTable,
    response_model_exclude_unset=True,
    responses=problems(409),
)
async def create_table(
    database: DatabaseName,
    body: NewTable,
    parts: PartsDep,
    asking: Asking,
    response: Response,
) -> StoredTable | Response:
    """Create a table, or report every fault of its name, schema and options.

    With `?validateOnly=true` it is `tables:validate`.
    """
    if asking.validate_only:
        asking.notes.nothing()
        return in_place_of(await run_in_threadpool(_valid_table, database, body, asking.grant, asking.bounds))
    created = await in_writers_thread(parts, _created, parts, database, body, asking)
    response.headers["ETag"] = table_etag(created)
    return _stored(created, parts.warehouse)


@router.post("/databases/{database}/tables:validate", operation_id="validateTable")
def validate_table(database: DatabaseName, body: NewTable, grant: GrantDep, bounds: BoundsDep) -> Validated:
    """Report every fault of a table's name, schema and options, and warnings; store nothing."""
    return _valid_table(database, body, grant, bounds)


def _valid_table(database: str, body: NewTable, grant: Grant, bounds: CatalogBounds) -> Validated:
    _check_same_database(database, body.identifier.database)
    name = body.identifier.object
    grant.check_table(Role.READ, database, name)
    return validated(table_warnings(service.validate_table(name, body.table_schema, bounds.table)))


def _created(parts: Parts, database: str, body: NewTable, asking: _Asking) -> Table:
    _check_same_database(database, body.identifier.database)
    grant, notes, bounds = asking.grant, asking.notes, asking.bounds
    name = body.identifier.object
    grant.check_table(Role.ADMIN, database, name)
    options = body.table_schema.get("options")
    notes.add(table=name, options=sorted(options) if isinstance(options, dict) else [])
    return service.create_table(parts.database, database, name, body.table_schema, grant.name, bounds)


def _check_same_database(in_path: str, in_body: str) -> None:
    if in_body != in_path:
        message = f"the path names the database {in_path!r}, the identifier {in_body!r}"
        fault = Violation("/identifier/database", FaultCode.CONTRADICTING_DATABASE, message, f"send {in_path!r} here")
        raise Invalid(message, violations=[fault])


@router.get("/databases/{database}/tables/{table}", operation_id="getTable", response_model_exclude_unset=True)
def get_table(table: TableDep, details: Details, response: Response) -> TableDetails:
    """Return a table and its schema. Its ETag is for ``If-Match`` of an ALTER or a drop."""
    response.headers["ETag"] = table_etag(table)
    return details.answer(table)


@router.get("/tables/id/{table_id}", operation_id="getTableById", response_model_exclude_unset=True)
def get_table_by_id(
    table_id: str, repository: Reading, details: Details, grant: GrantDep, response: Response
) -> TableDetails:
    """Return a table by its id, also after a rename."""
    table = service.get_table_by_id(repository, table_id)
    grant.check_table(Role.READ, table.database, table.name)
    response.headers["ETag"] = table_etag(table)
    return details.answer(table)


@router.get(
    "/databases/{database}/tables/{table}/schemas/{schema}",
    operation_id="getSchema",
    response_model_exclude_unset=True,
)
def get_schema(
    table: TableDep, repository: Reading, schema: Annotated[str, Path(description="its number, from 0")]
) -> NumberedSchema:
    """Return the schema with a number. Snapshots, answers with rows (`Keyfold-Schema`) and changelogs name theirs."""
    return NumberedSchema.from_value(service.table_under(repository, table, schema))


@router.post(
    "/databases/{database}/tables/{table}",
    operation_id="alterTable",
    response_model=StoredTable,
    response_model_exclude_unset=True,
    responses=problems(409, 412),
)
async def alter_table(
    name: FullName,
    body: AlterTable,
    parts: PartsDep,
    asking: Asking,
    response: Response,
    if_match: IfMatch = None,
) -> StoredTable | Response:
    """Change a table's columns, options and comments, in order, all or nothing.

    409 while batches are staged that the new schema would fold differently: merge them first. 412 if the table has
    changed since the ``If-Match``. With `?validateOnly=true` it is `changes:validate`.
    """
    check = unchanged(if_match)
    if asking.validate_only:
        asking.notes.nothing()
        answer = await in_writers_thread(parts, _valid_changes, parts, name, body, asking.grant, asking.bounds, check)
        return in_place_of(answer)
    altered = await in_writers_thread(parts, _altered, parts, name, body, asking, check)
    response.headers["ETag"] = table_etag(altered)
    return _stored(altered, parts.warehouse)


@router.post(
    "/databases/{database}/tables/{table}/changes:validate",
    operation_id="validateChanges",
    responses=problems(409, 412),
)
async def validate_changes(
    name: FullName, body: AlterTable, parts: PartsDep, grant: GrantDep, bounds: BoundsDep, if_match: IfMatch = None
) -> Validated:
    """Report every fault of changes to a table, and the warnings after them; store nothing.

    409 and 412 as for the changes themselves.
    """
    return await in_writers_thread(parts, _valid_changes, parts, name, body, grant, bounds, unchanged(if_match))


def _valid_changes(
    parts: Parts, name: tuple[str, str], body: AlterTable, grant: Grant, bounds: CatalogBounds, check: service.Check
) -> Validated:
    grant.check_table(Role.READ, *name)
    altered = service.alter_table(
        parts.database, name, body.changes, validate_only=True, by=grant.name, bounds=bounds.table, check=check
    )
    return validated(table_warnings(altered.schema))


def _altered(parts: Parts, name: tuple[str, str], body: AlterTable, asking: _Asking, check: service.Check) -> Table:
    grant, bounds = asking.grant, asking.bounds.table
    grant.check_table(Role.ADMIN, *name)
    altered = service.alter_table(parts.database, name, body.changes, by=grant.name, bounds=bounds, check=check)
    asking.notes.add(changes=[_what(change) for change in body.changes])
    return altered


def _what(change: Any) -> dict[str, object]:
    """Return the subject of a change for the audit log, without the values that it sets."""
    return {member: change[member] for member in ("action", "key", "fieldNames") if member in change}


@router.delete(
    "/databases/{database}/tables/{table}", operation_id="dropTable", response_class=Response, responses=problems(412)
)
async def drop_table(name: FullName, parts: PartsDep, if_match: IfMatch = None) -> Response:
    """Drop a table, its rows and its files; 412 if it has changed since the ``If-Match``."""
    await in_writers_thread(parts, drops.drop_table, parts.database, parts.warehouse, name, unchanged(if_match))
    return Response()


@router.post("/tables/rename", operation_id="renameTable", response_class=Response, responses=problems(404, 409))
def rename_table(body: RenameTable, repository: Writing, grant: GrantDep, notes: NotesDep) -> Response:
    """Rename a table, maybe into another database; both names must be in the token's scope."""
    source, destination = body.source, body.destination
    for identifier in (source, destination):
        grant.check_table(Role.ADMIN, identifier.database, identifier.object)
    old, new = ((identifier.database, identifier.object) for identifier in (source, destination))
    service.rename_table(repository, old, new, grant.name)
    notes.add(database=old[0], table=old[1], to={"database": new[0], "table": new[1]})
    return Response()
