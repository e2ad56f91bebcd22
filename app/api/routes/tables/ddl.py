"""Tables from SQL, and as SQL."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import Field

from app.api.document.payloads import StoredTable, Validated
from app.api.middleware.routing import Router
from app.api.routes.tables.tables import Asking, in_place_of, validated
from app.api.shared.answers import Answer, OwnBody
from app.api.shared.deps import BoundsDep, GrantDep, Parts, PartsDep, in_writers_thread
from app.api.shared.json_bodies import JsonRoute
from app.api.shared.paths import CATALOG_PATH, TABLE_PATH, DatabaseName
from app.api.shared.problems import PROBLEM_RESPONSES, problems
from app.api.shared.transactions import TableDep
from app.core.access import Grant, Role
from app.core.ddl.writer import table_ddl
from app.core.errors import Violation
from app.core.plan.explaining.table_warnings import table_warnings
from app.core.table.schema_bounds import CatalogBounds
from app.core.types.dialects import Dialect
from app.services.tables.ddl import DeclaredTable, FoundTable, create_declared, declared_tables
from app.services.tables.tables import location_of

router = Router(route_class=JsonRoute, tags=["tables"], responses=PROBLEM_RESPONSES)


class NewTables(OwnBody):
    """One or more CREATE TABLE statements, separated by ``;``."""

    ddl: str
    dialect: Dialect | None = Field(
        None, description="whose SQL it is; if left out, it is recognized by the words that only Spark has"
    )


class TableOfDdl(StoredTable):
    """A table that a statement has created, or that existed under IF NOT EXISTS."""

    created: bool


class TablesOfDdl(Answer):
    """The tables of the statements, in their order; ``dialect`` is the SQL dialect in which they were read."""

    dialect: Dialect
    tables: list[TableOfDdl]


class TableDdl(Answer):
    """A table as CREATE TABLE."""

    dialect: Dialect
    ddl: str


@router.post(
    f"{CATALOG_PATH}/databases/{{database}}/tables:fromDdl",
    operation_id="createTablesFromDdl",
    response_model=TablesOfDdl,
    response_model_exclude_unset=True,
    responses=problems(409),
)
async def create_tables_from_ddl(
    database: DatabaseName, body: NewTables, parts: PartsDep, asking: Asking
) -> TablesOfDdl | Response:
    """Create the tables of CREATE TABLE statements in Flink's or Spark's SQL, all or none; or report every fault,
    each with its line and column.

    With `?validateOnly=true` it is `tables:validateDdl`.
    """
    if asking.validate_only:
        asking.notes.nothing()
        return in_place_of(await run_in_threadpool(_valid_ddl, database, body, asking.grant, asking.bounds))
    return await in_writers_thread(parts, _created, parts, database, body, asking)


@router.post(f"{CATALOG_PATH}/databases/{{database}}/tables:validateDdl", operation_id="validateDdl")
def validate_ddl(database: DatabaseName, body: NewTables, grant: GrantDep, bounds: BoundsDep) -> Validated:
    """Report every fault of CREATE TABLE statements, each with its line and column, and warnings; store nothing."""
    return _valid_ddl(database, body, grant, bounds)


def _valid_ddl(database: str, body: NewTables, grant: Grant, bounds: CatalogBounds) -> Validated:
    declared = declared_tables(database, body.ddl, body.dialect, bounds)
    for declared_table in declared:
        grant.check_table(Role.READ, database, declared_table.name)
    return validated([warning for declared_table in declared for warning in _warnings(declared_table)])


def _created(parts: Parts, database: str, body: NewTables, asking: Asking) -> TablesOfDdl:
    declared = declared_tables(database, body.ddl, body.dialect, asking.bounds)
    for declared_table in declared:
        asking.grant.check_table(Role.ADMIN, database, declared_table.name)
    results = create_declared(parts.database, database, declared, asking.grant.name, asking.bounds)
    asking.notes.add(tables=[result.table.name for result in results if result.created])
    dialect = declared[0].statement.source.dialect
    return TablesOfDdl.from_value(None, dialect=dialect, tables=[_described(parts, result) for result in results])


def _warnings(declared: DeclaredTable) -> list[Violation]:
    return [*declared.statement.warnings, *table_warnings(declared.schema)]


def _described(parts: Parts, result: FoundTable) -> TableOfDdl:
    location = location_of(parts.warehouse, result.table)
    warnings: list[Violation] = _warnings(result.declared)
    return TableOfDdl.from_value(result.table, path=location, warnings=warnings, created=result.created)


@router.get(f"{TABLE_PATH}/ddl", operation_id="getTableDdl")
def get_table_ddl(
    table: TableDep, dialect: Annotated[Dialect, Query(description="whose SQL")] = Dialect.FLINK
) -> TableDdl:
    """Return the CREATE TABLE statement of the table's schema; 400 if Spark's SQL cannot express it."""
    return TableDdl.from_value(None, dialect=dialect, ddl=table_ddl(table.name, table.schema, dialect))
