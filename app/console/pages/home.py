"""The first page: the state of the service, and its tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import anyio.from_thread
from starlette.responses import Response

from app.console.site.nearest import nearest_database_step
from app.console.site.visits import Page, Visit
from app.core.access import Role
from app.services.explaining.examples import DATABASE, EXAMPLES
from app.services.operating.overview import overview
from app.services.operating.readiness import Condition

PAGE_TABLES: Final = 50
_FRAGMENT: Final = "pages/home_tables.html"


@dataclass(frozen=True)
class ServicePart:
    """One part that the service needs, and why it cannot be used now."""

    name: str
    fault: str | None


def show_home(visit: Visit) -> Response:
    """Show the whole page."""
    context = _context(visit)
    return visit.page("pages/home.html", **context, digest=visit.digest(_FRAGMENT, **context))


def show_tables(visit: Visit) -> Response:
    """Show the part that changes, which is polled."""
    return visit.fragment(_FRAGMENT, **_context(visit))


def _context(visit: Visit) -> dict[str, Any]:
    part, after = visit.param("q").strip()[:255], visit.param("after")
    only = visit.param("database")
    database, _, table = after.partition("/")
    with visit.parts.database.reading() as repository:
        shown = overview(
            repository,
            visit.grant.scope.within(only) if only else visit.grant.scope,
            after=(database, table) if after else None,
            limit=PAGE_TABLES,
            part=part,
            spark_answers=visit.parts.spark_ready(),
        )
    near = nearest_database_step(visit, only) if only and not shown.count else None
    context = {"overview": shown, "q": part, "only": only, "near": near, "after": after, "parts": service_parts(visit)}
    return {
        **context,
        "greets": not shown.count and not part and not only and visit.may(Role.READ, DATABASE),
        "examples": [*EXAMPLES.values()],
    }


def service_parts(visit: Visit) -> list[ServicePart]:
    """Return the state of the catalog, the warehouse and Spark."""
    condition: Condition = anyio.from_thread.run(visit.parts.condition.now)
    spark = None if visit.parts.spark_ready() else "it starts, or does not answer: nothing is merged until it does"
    return [
        ServicePart("Catalog", condition.catalog),
        ServicePart("Warehouse", condition.warehouse),
        ServicePart("Spark", spark),
    ]


PAGES: Final = (
    Page("GET", "/", show_home, Role.READ),
    Page("GET", "/console/tables", show_tables, Role.READ, whole=False),
)
