"""A table's page: what it holds, its rules in words, and its rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import Response

from app.console.parts.curl import table_path
from app.console.site.tabs import row_link
from app.console.site.visits import Page, Visit
from app.core.errors import Invalid
from app.core.plan.explaining.table_warnings import table_warnings
from app.core.table.options.entries import Consistency, Integers
from app.services.operating.stats import table_stats
from app.services.rows.scan_pages import check_filters, loaded, pinned_view, read_page
from app.services.rows.scans import BEGINNING, NDJSON, Place, read_scan
from app.services.rows.views import View
from app.services.shared.damage import read_again
from app.services.tables.drafts import DraftTable
from app.services.tables.rules import table_rules

TABLE_PAGE: Final = "/console/tables/{database}/{table}"
PAGE_ROWS: Final = 50
PAGE_ITEMS: Final = 50


@dataclass(frozen=True)
class RowsShown:
    """A page of rows as JSON, the columns, and where the next page begins."""

    columns: tuple[str, ...]
    keys: tuple[str, ...]
    rows: list[dict[str, Any]]
    next_token: str | None

    def address(self, row: Mapping[str, Any]) -> str:
        """What asks for the page of one of the rows."""
        return row_link([row[name] for name in self.keys])


def table_name(visit: Visit) -> tuple[str, str]:
    """The database and the table in the path."""
    return visit.names["database"], visit.names["table"]


def table_page(visit: Visit, tab: str, **values: Any) -> Response:
    """A page of the table; ``tab`` is the name of its template and of its place among them."""
    path = table_path(*table_name(visit))
    status = values.pop("status", HTTPStatus.OK)
    return visit.page(f"table/table_{tab}.html", status, tab=tab, name=table_name(visit), api=path, **values)


def show_table(visit: Visit) -> Response:
    """What it holds and what it does with records."""
    with visit.parts.database.reading() as repository:
        table = repository.tables.get(*table_name(visit))
        stats = table_stats(repository, table, spark_answers=visit.parts.spark_ready())
        failure = repository.overview.merge_failures([table.id]).get(table.id)
    schema = table.schema
    told = DraftTable(table.name, schema, table_rules(schema, stats.set_aside), table_warnings(schema))
    return table_page(visit, "overview", table=told, whole=table, stats=stats, failure=failure)


def show_rows(visit: Visit) -> Response:
    """Its rows, staged records included, a page at a time."""
    asked = visit.asked("filter").strip()
    filters, error, found = [asked] if asked else [], None, None
    try:
        found = rows_of(visit, filters, visit.asked("after") or None)
    except Invalid as invalid:
        error = invalid
    status = HTTPStatus.OK if error is None else HTTPStatus.BAD_REQUEST
    return table_page(visit, "rows", status=status, found=found, asked=asked, error=error)


def rows_of(visit: Visit, filters: list[str], token: str | None, most: int = PAGE_ROWS) -> RowsShown:
    """A page of ``most`` of the table's rows. Raises ``Invalid`` for a filter or a token that is none."""
    parts = visit.parts
    with ExitStack() as held:
        room = held.enter_context(parts.scans.place())

        def read() -> tuple[View, Place]:
            if token is None:
                view, start = parts.views.current(table_name(visit), Consistency.LATEST), BEGINNING
            else:
                with parts.database.reading() as repository:
                    view, start = pinned_view(repository, repository.tables.get(*table_name(visit)), token)
            return loaded(parts.warehouse, view, room), start

        view, start = read_again(read)
        scan = read_scan(view, None, filters, Integers.NUMBER)  # which Python reads exactly
        room.take_columns(scan.columns_read)
        if token is not None:
            check_filters(token, scan, filters)
        page = read_page(parts.warehouse, scan, filters, most, start)
        rows = [json.loads(line) for line in page.body(NDJSON).splitlines()]
    names = tuple(column.name for column in scan.columns)
    return RowsShown(names, view.table.schema.primary_key, rows, page.next_token)


PAGES: Final = (
    Page("GET", TABLE_PAGE, show_table),
    Page("GET", f"{TABLE_PAGE}/rows", show_rows),
)
