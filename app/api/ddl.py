"""Tables from SQL, and as SQL."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from app.api.answers import Answer, Payload
from app.api.deps import Parts, PartsDep, in_writers_thread
from app.api.paths import CATALOG_PATH, TABLE_PATH, DatabaseName, ReadTable
from app.api.payloads import StoredTable, Validated
from app.api.problems import PROBLEM_RESPONSES
from app.api.tables import Asking
from app.core.access import Role
from app.core.ddl.writer import table_ddl
from app.core.errors import Violation
from app.core.plan.table_warnings import table_warnings
from app.core.types.dialects import Dialect
from app.services.ddl import DeclaredTable, FoundTable, create_declared, declared_tables
from app.services.tables import location_of

router = APIRouter(tags=["tables"], responses=PROBLEM_RESPONSES)


class NewTables(Payload):
    """One or more CREATE TABLE statements, separated by ``;``."""

    ddl: str
    dialect: Dialect | None = Field(
        None, description="whose SQL it is; told by the words that only Spark has, if it is left out"
    )


class TableOfDdl(StoredTable):
    """A table that a statement has created, or, under IF NOT EXISTS, found."""

    created: bool


class TablesOfDdl(Answer):
    """The tables of the statements, in their order; ``dialect`` is the one they were read in."""

    dialect: Dialect
    tables: list[TableOfDdl]


class TableDdl(Answer):
    """A table as CREATE TABLE."""

    dialect: Dialect
    ddl: str


@router.post(
    f"{CATALOG_PATH}/databases/{{database}}/tables:fromDdl",
    operation_id="createTablesFromDdl",
    response_model_exclude_unset=True,
)
async def create_tables_from_ddl(
    database: DatabaseName, body: NewTables, parts: PartsDep, asking: Asking
) -> TablesOfDdl | Validated:
    """Creates the tables of CREATE TABLE statements in Flink's or Spark's SQL, all or none; or tells every fault, each
    with its line and column.
    """
    return await in_writers_thread(parts, _created, parts, database, body, asking)


def _created(parts: Parts, database: str, body: NewTables, asking: Asking) -> TablesOfDdl | Validated:
    declared = declared_tables(database, body.ddl, body.dialect, asking.bounds)
    for one in declared:
        asking.grant.check_table(Role.READ if asking.validate_only else Role.ADMIN, database, one.name)
    if asking.validate_only:
        asking.notes.nothing()
        return Validated.of(None, violations=[], warnings=[told for one in declared for told in _warnings(one)])
    found = create_declared(parts.database, database, declared, asking.grant.name, asking.bounds)
    asking.notes.tell(tables=[one.table.name for one in found if one.created])
    dialect = declared[0].statement.source.dialect
    return TablesOfDdl.of(None, dialect=dialect, tables=[_told(parts, one) for one in found])


def _warnings(declared: DeclaredTable) -> list[Violation]:
    return [*declared.statement.warnings, *table_warnings(declared.schema)]


def _told(parts: Parts, found: FoundTable) -> TableOfDdl:
    location = location_of(parts.warehouse, found.table)
    warnings: list[Violation] = _warnings(found.declared)
    return TableOfDdl.of(found.table, path=location, warnings=warnings, created=found.created)


@router.get(f"{TABLE_PATH}/ddl", operation_id="getTableDdl")
def get_table_ddl(
    table: ReadTable, dialect: Annotated[Dialect, Query(description="whose SQL")] = Dialect.FLINK
) -> TableDdl:
    """The CREATE TABLE statement that makes a table with this schema; 400 where Spark's SQL has no words for it."""
    return TableDdl.of(None, dialect=dialect, ddl=table_ddl(table.name, table.schema, dialect))
