"""A table's page: what it holds, and its rules in words."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from starlette.responses import Response

from app.console.parts.curl import table_path
from app.console.site.visits import Page, Visit
from app.core.plan.explaining.table_warnings import table_warnings
from app.services.operating.stats import table_stats
from app.services.tables.drafts import DraftTable
from app.services.tables.rules import table_rules

TABLE_PAGE: Final = "/console/tables/{database}/{table}"
PAGE_ITEMS: Final = 50


def table_name(visit: Visit) -> tuple[str, str]:
    """Return the database and the table in the path."""
    return visit.names["database"], visit.names["table"]


def table_page(visit: Visit, tab: str, **values: Any) -> Response:
    """Show a page of the table; ``tab`` is the name of its template and of its place among them."""
    path = table_path(*table_name(visit))
    status = values.pop("status", HTTPStatus.OK)
    return visit.page(f"table/table_{tab}.html", status, tab=tab, name=table_name(visit), api=path, **values)


def show_table(visit: Visit) -> Response:
    """Show what the table holds and what it does with records."""
    with visit.parts.database.reading() as repository:
        table = repository.tables.get(*table_name(visit))
        stats = table_stats(repository, table, spark_answers=visit.parts.spark_ready())
        failure = repository.overview.merge_failures([table.id]).get(table.id)
    schema = table.schema
    draft = DraftTable(table.name, schema, table_rules(schema), table_warnings(schema))
    return table_page(visit, "overview", table=draft, whole=table, stats=stats, failure=failure)


PAGES: Final = (Page("GET", TABLE_PAGE, show_table),)
