"""Routes of databases, as in Paimon's REST catalog."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from app.api.document.payloads import ChangedDatabase, DatabaseChanges, DatabaseDetails, DatabaseNames, NewDatabase
from app.api.middleware.audit import NotesDep
from app.api.middleware.routing import Router
from app.api.shared.deps import BoundsDep, GrantDep, PartsDep, WarehouseDep, in_writers_thread
from app.api.shared.json_bodies import JsonRoute
from app.api.shared.paging import WantedPage, name_pattern
from app.api.shared.paimon_clients import PaimonClient
from app.api.shared.paths import DATABASES_PATH, DatabaseName
from app.api.shared.problems import PROBLEM_RESPONSES, problems
from app.api.shared.transactions import Reading, Writing
from app.core.access import Role
from app.services.tables import databases as service
from app.services.tables import drops

# Paimon's clients send POST bodies without a Content-Type, which FastAPI would not read otherwise.
router = Router(
    route_class=JsonRoute,
    prefix=DATABASES_PATH,
    tags=["databases"],
    responses=PROBLEM_RESPONSES,
    strict_content_type=False,
)

Cascade = Annotated[
    bool | None,
    Query(
        description="Whether its tables are dropped, too: only if it is true. Paimon's clients, which look for tables"
        " themselves, mean true where they say nothing (decision 0030)."
    ),
]
DatabasePattern = Annotated[str | None, name_pattern("databaseNamePattern")]


@router.get("", operation_id="listDatabases")
def list_databases(
    repository: Reading, wanted: WantedPage, grant: GrantDep, pattern: DatabasePattern = None
) -> DatabaseNames:
    """List the names of the databases in the token's scope, or with a table in it, in order, a page at a time."""
    shown = grant.scope.shown_databases
    return DatabaseNames.from_value(service.list_databases(repository, wanted, pattern, shown))


@router.post("", operation_id="createDatabase", responses=problems(409))
def create_database(
    body: NewDatabase,
    repository: Writing,
    warehouse: WarehouseDep,
    grant: GrantDep,
    notes: NotesDep,
    bounds: BoundsDep,
) -> DatabaseDetails:
    """Create a database."""
    notes.add(database=body.name, options=sorted(body.options or {}))
    grant.check_database(Role.ADMIN, body.name)
    database = service.create_database(repository, body.name, body.options or {}, grant.name, bounds)
    return DatabaseDetails.from_value(database, location=warehouse.uri())


@router.get("/{database}", operation_id="getDatabase")
def get_database(database: DatabaseName, repository: Reading, warehouse: WarehouseDep) -> DatabaseDetails:
    """Return a database and its options."""
    return DatabaseDetails.from_value(service.get_database(repository, database), location=warehouse.uri())


@router.post("/{database}", operation_id="alterDatabase")
def alter_database(
    database: DatabaseName, body: DatabaseChanges, repository: Writing, grant: GrantDep, notes: NotesDep
) -> ChangedDatabase:
    """Remove and set options of a database."""
    notes.add(removed=sorted(body.removals or []), updated=sorted(body.updates or {}))
    change = service.alter_database(repository, database, body.removals or [], body.updates or {}, grant.name)
    return ChangedDatabase.from_value(change)


@router.delete("/{database}", operation_id="dropDatabase", response_class=Response, responses=problems(409))
async def drop_database(
    database: DatabaseName, parts: PartsDep, notes: NotesDep, paimon: PaimonClient, cascade: Cascade = None
) -> Response:
    """Drop a database; 409 while it has tables, unless ``cascade`` drops them with their rows and files."""
    all_of_it = paimon if cascade is None else cascade
    tables = await in_writers_thread(
        parts, drops.drop_database, parts.database, parts.warehouse, database, cascade=all_of_it
    )
    notes.add(tables=tables)
    return Response()
