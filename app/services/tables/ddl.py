"""Tables from CREATE TABLE statements: all of a request's, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.ddl.reader import TableStatement, read_tables
from app.core.errors import ErrorCode, FaultCode, Invalid, NotFound, Resource, Violation
from app.core.table.history import Table
from app.core.table.schema import TableSchema
from app.core.table.schema_bounds import DEFAULT_BOUNDS, CatalogBounds
from app.core.types.dialects import Dialect
from app.services.tables.tables import validate_table


@dataclass(frozen=True)
class DeclaredTable:
    """A statement and its valid schema."""

    statement: TableStatement
    schema: TableSchema

    @property
    def name(self) -> str:
        """The table's name."""
        return self.statement.name


@dataclass(frozen=True)
class FoundTable:
    """A table that a statement has created, or that existed under IF NOT EXISTS."""

    declared: DeclaredTable
    table: Table
    created: bool


def declared_tables(
    database: str, text: str, dialect: Dialect | None, bounds: CatalogBounds = DEFAULT_BOUNDS
) -> list[DeclaredTable]:
    """Return the tables that ``text`` declares, in order; read only the request.

    Raise ``Invalid`` with every fault of every statement.
    """
    declared, faults = [], []
    statements = read_tables(text, dialect)
    for statement in statements:
        faults += [*_path_faults(database, statement)]
        try:
            declared.append(DeclaredTable(statement, validate_table(statement.name, statement.body, bounds.table)))
        except Invalid as invalid:
            faults += statement.in_source(invalid.violations)
    faults += [*_named_twice(statements)]
    if faults:
        raise Invalid(faults[0].message, code=ErrorCode.INVALID_SCHEMA, violations=faults)
    return declared


def _path_faults(database: str, statement: TableStatement) -> Iterator[Violation]:
    if len(statement.path) > 1 and statement.path[-2] != database:
        message = f"the path of the request names the database {database!r}, the statement {statement.path[-2]!r}"
        fix = f"leave it out, or POST it to …/databases/{statement.path[-2]}/tables:fromDdl"
        fault = Violation("/identifier/object", FaultCode.CONTRADICTING_DATABASE, message, fix)
        yield from statement.in_source([fault])


def _named_twice(statements: Sequence[TableStatement]) -> Iterator[Violation]:
    seen: Counter[str] = Counter()
    for statement in statements:
        seen[statement.name] += 1
        if seen[statement.name] == 2:
            message = f"table {statement.name!r} is created twice"
            fault = Violation("/identifier/object", FaultCode.ILLEGAL_NAME, message, "remove one of the statements")
            yield from statement.in_source([fault])


def create_declared(
    catalog: CatalogDatabase,
    database: str,
    declared: Sequence[DeclaredTable],
    by: str = "",
    bounds: CatalogBounds = DEFAULT_BOUNDS,
) -> list[FoundTable]:
    """Return all tables of ``declared``, in one transaction.

    Raise ``NotFound`` for the database, ``AlreadyExists`` for a table without IF NOT EXISTS, and ``Conflict`` if
    there are too many tables.
    """
    with catalog.transaction() as repository:
        return [
            _existing(repository, database, declared_table)
            or _created(repository, database, declared_table, by, bounds)
            for declared_table in declared
        ]


def _existing(repository: Repository, database: str, declared: DeclaredTable) -> FoundTable | None:
    """Return the existing table if the statement has IF NOT EXISTS."""
    if not declared.statement.if_not_exists:
        return None
    try:
        return FoundTable(declared, repository.tables.get(database, declared.name), created=False)
    except NotFound as error:
        if error.resource_type != Resource.TABLE:
            raise
        return None


def _created(
    repository: Repository, database: str, declared: DeclaredTable, by: str, bounds: CatalogBounds
) -> FoundTable:
    bounds.check_tables(repository.tables.count())
    return FoundTable(declared, repository.tables.create(database, declared.name, declared.schema, by), created=True)
