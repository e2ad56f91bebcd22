"""The rows of a table: a page at a time, those that meet filters, some of their columns, and all of them as a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from decimal import Decimal
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from starlette.responses import Response

from app.console.parts.words import query
from app.console.site.tabs import row_link
from app.console.site.visits import HEADERS, Page, Visit
from app.console.table_pages.table import TABLE_PAGE, table_name, table_page
from app.core.errors import Invalid
from app.core.hints import nearest
from app.core.plan.records.row_filters import Operator
from app.core.table.options.entries import Consistency, Integers
from app.core.table.schema import Column, TableSchema
from app.core.types.kinds import Family
from app.http.streams import noted, whole_or_streamed
from app.services.rows.scan_pages import check_filters, loaded, pinned_view, read_page
from app.services.rows.scans import BEGINNING, CSV, NDJSON, PARQUET, Place, read_scan, written
from app.services.rows.views import View
from app.services.shared.damage import read_again

PAGE_ROWS: Final = 50
_NUMBERS: Final = (Family.INTEGER, Family.FLOATING, Family.DECIMAL)
_FILES: Final[Mapping[str, str]] = {"csv": CSV, "ndjson": NDJSON, "parquet": PARQUET}
# What somebody may choose between a column and a value; ``is`` needs none.
OPERATORS: Final[Mapping[str, str]] = {
    Operator.EQ: "is",
    Operator.NE: "is not",
    Operator.LT: "is less than",
    Operator.LTE: "is at most",
    Operator.GT: "is more than",
    Operator.GTE: "is at least",
    Operator.LIKE: "is like (% any text)",
    Operator.IN: "is one of (a,b)",
    f"{Operator.IS}.null": "is null",
    f"{Operator.IS}.not_null": "is not null",
}


@dataclass(frozen=True)
class WantedRows:
    """The rows to show: ``filters`` that each meets, and the columns, all where none is named. ``sort`` is the
    column by which the rows of a page are sorted, empty for none, and ``down`` that the greatest comes first.
    """

    filters: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    sort: str = ""
    down: bool = False

    @property
    def words(self) -> str:
        """As a query has it."""
        order = {"sort": self.sort, **({"down": 1} if self.down else {})} if self.sort else {}
        return query({"filter": self.filters, "show": self.columns, **order})

    def sorted_by(self, sort: str, *, down: bool = False) -> WantedRows:
        """Return the same, its pages sorted otherwise."""
        return replace(self, sort=sort, down=down)

    def hiding(self, name: str, shown: Sequence[Column]) -> WantedRows:
        """Return the same without a column of those that are ``shown``."""
        return replace(self, columns=tuple(column.name for column in shown if column.name != name))

    def without(self, text: str) -> WantedRows:
        """Return the same without one filter."""
        return replace(self, filters=tuple(other for other in self.filters if other != text))

    def mended(self, schema: TableSchema) -> WantedRows | None:
        """Return the same with the nearest names for columns that there are not; None if no name is near."""
        mended = replace(
            self,
            filters=tuple(_mended(filter_text, schema) for filter_text in self.filters),
            columns=tuple(
                column if column in schema.by_name else nearest(column, schema.by_name) or column
                for column in self.columns
            ),
        )
        return None if mended == self else mended


def _mended(text: str, schema: TableSchema) -> str:
    name, dot, rest = text.partition(".")
    if any(text.startswith(f"{known}.") for known in schema.by_name):
        return text
    return f"{nearest(name, schema.by_name) or name}{dot}{rest}"


@dataclass(frozen=True)
class RowsShown:
    """A page of rows as JSON, the columns, and where the next page begins."""

    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    rows: list[dict[str, Any]]
    next_token: str | None

    def address(self, row: Mapping[str, Any]) -> str:
        """Return the address of the page of one of the rows."""
        return row_link([row[name] for name in self.keys])

    def is_number(self, column: Column) -> bool:
        """Return whether the values of a column stand below each other by their last digit."""
        return column.type.family in _NUMBERS


def wanted_rows(visit: Visit) -> WantedRows:
    """Return the rows of the address; the three controls add a filter."""
    sent = visit.request.query_params
    filters = [text for sent_text in sent.getlist("filter") if (text := sent_text.strip())]
    column, operator = sent.get("column", ""), sent.get("operator", "")
    if column and operator:
        bare = operator.startswith(f"{Operator.IS}.")
        value = sent.get("value", "")
        listed = operator == Operator.IN and not value.startswith("(")
        filters.append(f"{column}.{operator}" if bare else f"{column}.{operator}.{f'({value})' if listed else value}")
    shown = tuple(dict.fromkeys(sent.getlist("show")))
    return WantedRows(tuple(dict.fromkeys(filters)), shown, sent.get("sort", ""), "down" in sent)


def show_rows(visit: Visit) -> Response:
    """Show the table's rows, staged records included, a page at a time."""
    wanted, error, shown = wanted_rows(visit), None, None
    try:
        shown = rows_of(visit, wanted, visit.param("after") or None)
    except Invalid as invalid:
        error = invalid
    status = HTTPStatus.OK if error is None else HTTPStatus.BAD_REQUEST
    schema = visit.parts.views.current(table_name(visit), Consistency.LATEST).table.schema
    mended = None if error is None else wanted.mended(schema)
    values = {"found": shown, "wanted": wanted, "error": error, "schema": schema, "operators": OPERATORS}
    return table_page(visit, "rows", status=status, files=tuple(_FILES), mended=mended, **values)


def rows_of(visit: Visit, wanted: WantedRows, token: str | None, most: int = PAGE_ROWS) -> RowsShown:
    """Return a page of ``most`` of the table's rows. Raise ``Invalid`` for a filter, column or token that is none."""
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
        keys = view.table.schema.primary_key
        # A row is found by its key: it is read though it may not be shown.
        columns = [*dict.fromkeys((*keys, *wanted.columns))] if wanted.columns else None
        scan = read_scan(view, columns, wanted.filters, Integers.NUMBER)  # which Python reads exactly
        room.take_columns(scan.columns_read)
        if token is not None:
            check_filters(token, scan, wanted.filters)
        page = read_page(parts.warehouse, scan, wanted.filters, most, start)
        rows = [json.loads(line) for line in page.body(NDJSON).splitlines()]
    return RowsShown(_keys_first(scan.columns, keys), keys, _sorted(rows, scan.columns, wanted), page.next_token)


def _keys_first(columns: Sequence[Column], keys: tuple[str, ...]) -> tuple[Column, ...]:
    return tuple(sorted(columns, key=lambda column: column.name not in keys))


def _sorted(rows: list[dict[str, Any]], columns: Sequence[Column], wanted: WantedRows) -> list[dict[str, Any]]:
    """Return the rows of a page by a column, nulls last; as they are where there is no such column."""
    for column in columns:
        if column.name == wanted.sort:
            written = [row for row in rows if row[column.name] is not None]
            key = _number if column.type.family in _NUMBERS else str
            written.sort(key=lambda row: key(row[column.name]), reverse=wanted.down)
            return [*written, *(row for row in rows if row[column.name] is None)]
    return rows


def _number(value: Any) -> Decimal:
    """Return the sort key of a number in JSON; NaN is the greatest, as in Spark."""
    number = Decimal(str(value))
    return Decimal("Infinity") if number.is_nan() else number


def download_rows(visit: Visit) -> Response:
    """Return all rows of the address as a file. Raise ``Invalid`` for a filter, a column or a format that is none."""
    wanted, form, parts = wanted_rows(visit), visit.param("format"), visit.parts
    if form not in _FILES:
        raise Invalid(f"rows are downloaded as {', '.join(_FILES)}")
    with ExitStack() as held:
        room = held.enter_context(parts.scans.place())

        def read() -> View:
            return loaded(parts.warehouse, parts.views.current(table_name(visit), Consistency.LATEST), room)

        scan = read_scan(read_again(read), wanted.columns or None, wanted.filters)
        room.take_columns(scan.columns_read)
        name = quote(f"{table_name(visit)[1]}.{form}", safe="")
        headers = {**HEADERS, "Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
        stream = noted(parts, written(parts.warehouse, scan, _FILES[form]))
        return whole_or_streamed(stream, _FILES[form], headers, held)


PAGES: Final = (
    Page("GET", f"{TABLE_PAGE}/rows", show_rows),
    Page("GET", f"{TABLE_PAGE}/rows/download", download_rows, whole=False),
)
