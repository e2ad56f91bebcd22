"""``T/rows:scan``: all rows of a table, as a stream or in pages."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Header, Query, Request, Response
from pydantic import Field

from app.api.document.components import headers
from app.api.middleware.negotiation import chosen
from app.api.middleware.routing import Router
from app.api.routes.rows.lookups import Lookup, names_in, seen_headers, view_now
from app.api.routes.rows.rows import SEEN, Columns, Version, Wanted
from app.api.shared.answers import Answer, From
from app.api.shared.deps import Parts, PartsDep
from app.api.shared.paths import TABLE_PATH, FullName, sent_path
from app.api.shared.preferences import USUAL, SpellingDep
from app.api.shared.problems import PROBLEM_RESPONSES
from app.core.errors import FaultCode, Invalid, Violation
from app.core.table.upkeep.damage import DamagedFile
from app.http.streams import noted, whole_or_streamed
from app.services.rows.scan_pages import (
    MOST_ROWS,
    ScanPlace,
    check_filters,
    count_rows,
    loaded,
    page_failure,
    pinned_view,
    read_page,
)
from app.services.rows.scans import (
    BEGINNING,
    LEAST_TOKEN,
    MOST_TOKEN,
    NDJSON,
    WRITERS,
    Place,
    TokenRange,
    read_scan,
    written,
)
from app.services.rows.views import View
from app.services.shared.damage import read_again

router = Router(prefix=TABLE_PATH, tags=["rows"], responses=PROBLEM_RESPONSES)
NEXT_PAGE_HEADER = "Keyfold-Next-Page"
_TYPES = (NDJSON, *(name for name in WRITERS if name != NDJSON))

Filters = Annotated[
    list[str],
    Query(
        alias="filter",
        description="column.operator.value, where operator is eq, ne, lt, lte, gt, gte, in.(a,b), like or"
        " is.null/is.not_null; several must all be met. A null meets none but is.null",
    ),
]
Limit = Annotated[
    int | None,
    Query(
        description=f"the most rows of a page, up to {MOST_ROWS}; {NEXT_PAGE_HEADER} asks for the next one. Without"
        " it all rows are streamed"
    ),
]
FirstToken = Annotated[
    int,
    Query(
        alias="firstToken",
        ge=LEAST_TOKEN,
        le=MOST_TOKEN,
        description="only rows whose token is this one or greater: a share of the table, as `T/files` has"
        " them, to read it in several tasks; add `snapshot`, so that all of them read the same",
    ),
]
LastToken = Annotated[
    int, Query(alias="lastToken", ge=LEAST_TOKEN, le=MOST_TOKEN, description="the greatest token that is read")
]
PageToken = Annotated[
    str | None,
    Query(
        alias="pageToken",
        description=f"the {NEXT_PAGE_HEADER} of the page before: the scan continues with its snapshot and filters",
    ),
]


@router.get(
    "/rows:scan",
    operation_id="scanRows",
    response_class=Response,
    responses={
        200: {
            "description": "rows, by token; in a table with partitions by partition and token",
            "headers": headers(*SEEN, NEXT_PAGE_HEADER, "Link", "Content-Digest"),
            "content": {name: {"schema": dict(writer.schema)} for name, writer in WRITERS.items()},
        }
    },
)
def scan_rows(
    name: FullName,
    parts_open: PartsDep,
    request: Request,
    columns: Columns = None,
    filters: Filters = [],  # noqa: B006  # FastAPI copies it
    limit: Limit = None,
    page_token: PageToken = None,
    consistency: Wanted = None,
    snapshot: Version = None,
    first_token: FirstToken = LEAST_TOKEN,
    last_token: LastToken = MOST_TOKEN,
    spelling: SpellingDep = USUAL,
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """Return all rows of one snapshot, with staged records on top, as NDJSON, CSV, Parquet or an Arrow stream."""
    _check(limit, page_token, consistency is not None or snapshot is not None)
    lookup = Lookup(name, (), names_in(columns), consistency, snapshot, spelling=spelling)
    with ExitStack() as held:
        place = held.enter_context(parts_open.scans.place())
        view, start = scanned(parts_open, lookup, place, page_token)
        tokens = TokenRange(first_token, last_token)
        scan = read_scan(view, lookup.columns, filters, spelling.integers, tokens)
        place.take_columns(scan.columns_read)
        kind = chosen(accept, _TYPES)
        headers = seen_headers(view, lookup)
        if limit is None and page_token is None:
            stream = noted(parts_open, written(parts_open.warehouse, scan, kind))
            return whole_or_streamed(stream, kind, headers, held)
        if page_token is not None:
            check_filters(page_token, scan, filters)
        page = read_page(parts_open.warehouse, scan, filters, limit or MOST_ROWS, start)
        return Response(page.body(kind), media_type=kind, headers=headers | _next(request, page.next_token))


def _check(limit: int | None, page_token: str | None, versioned: bool) -> None:
    """Raise ``Invalid`` for parameters that are invalid or exclude each other."""
    faults: list[Violation] = []
    if limit is not None and not 1 <= limit <= MOST_ROWS:
        message = f"limit {limit} is not from 1 to {MOST_ROWS}"
        fix = "leave it out for a stream of all rows, or read pages"
        faults.append(Violation("/limit", FaultCode.OUT_OF_RANGE, message, fix))
    if page_token is not None and versioned:
        message = "pageToken continues with the snapshot of its scan"
        fix = "leave out snapshot and consistency"
        faults.append(Violation("", FaultCode.CONTRADICTING_PARAMETERS, message, fix))
    if faults:
        raise Invalid(faults[0].message, violations=faults)


def scanned(parts_open: Parts, lookup: Lookup, room: ScanPlace, page_token: str | None = None) -> tuple[View, Place]:
    """Return the view that the scan reads, with its staged records in memory, and the place where it begins."""

    def read() -> tuple[View, Place]:
        view, start = _seen(parts_open, lookup, page_token)
        return loaded(parts_open.warehouse, view, room), start

    try:
        return read_again(read)
    except DamagedFile as error:
        if page_token is None:
            raise
        raise page_failure(parts_open.database, error, page_token) from error


def _seen(parts_open: Parts, lookup: Lookup, page_token: str | None) -> tuple[View, Place]:
    if page_token is None:
        return view_now(parts_open, lookup), BEGINNING
    with parts_open.database.reading() as repository:
        return pinned_view(repository, repository.tables.get(*lookup.name), page_token)


def _next(request: Request, token: str | None) -> dict[str, str]:
    if token is None:
        return {}
    left_out = ("pageToken", "snapshot", "consistency")
    parameters = [(name, value) for name, value in request.query_params.multi_items() if name not in left_out]
    query = urlencode([*parameters, ("pageToken", token)])
    return {NEXT_PAGE_HEADER: token, "Link": f'<{sent_path(request)}?{query}>; rel="next"'}


class Count(Answer):
    """The number of rows."""

    count: Annotated[int, From("rows")]
    exact: bool = Field(description="whether they were counted; else they are estimated from a share of the keys")
    snapshot_id: int | None


@router.get("/rows:count", operation_id="countRows", response_model=Count)
def count(
    name: FullName,
    parts_open: PartsDep,
    filters: Filters = [],  # noqa: B006  # FastAPI copies it
    exact: Annotated[bool, Query(description="count all rows, however long that takes")] = False,
    consistency: Wanted = None,
    snapshot: Version = None,
) -> Count:
    """Count the rows that meet the filters: exact if known or cheap, otherwise estimated unless ``exact`` is true."""
    with parts_open.scans.place() as place:
        view, _ = scanned(parts_open, Lookup(name, (), None, consistency, snapshot), place)
        scan = read_scan(view, view.table.schema.primary_key, filters)
        place.take_columns(scan.columns_read)
        return Count.from_value(count_rows(parts_open.warehouse, scan, exact=exact))
