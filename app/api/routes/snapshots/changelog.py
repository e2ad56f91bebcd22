"""``T/changelog``: changes of rows, in pages of NDJSON or Arrow, or live as server-sent events."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse
from pydantic import WithJsonSchema

from app.api.document.components import headers
from app.api.middleware.auth import check_again
from app.api.middleware.negotiation import chosen
from app.api.middleware.routing import Router
from app.api.routes.snapshots.following import Following, Lines, events
from app.api.shared.deps import DatabaseDep, HeadsDep, WarehouseDep
from app.api.shared.paging import is_of_64_bits, page_size, size_words
from app.api.shared.paths import TABLE_PATH, FullName, sent_path
from app.api.shared.preferences import USUAL, SpellingDep
from app.api.shared.problems import PROBLEM_RESPONSES, problems
from app.core.errors import FaultCode, Invalid, Violation
from app.core.plan.records.integers import encoder_of, integers_of
from app.core.table.options.entries import Integers
from app.services.snapshots.changelogs import Changes, Page, Position, as_arrow, check_range, follow_from, read_page

router = Router(prefix=TABLE_PATH, tags=["changelog"], responses=PROBLEM_RESPONSES)
NDJSON, ARROW, EVENTS = "application/x-ndjson", "application/vnd.apache.arrow.stream", "text/event-stream"
_TYPES = (NDJSON, ARROW, EVENTS)
_PAGE = (1000, 10_000)  # changes: without maxResults, and at most
_SNAPSHOT = WithJsonSchema({"type": "integer", "minimum": 1})
_TEXT = {"schema": {"type": "string"}}
_BYTES = {"schema": {"type": "string", "format": "binary"}}


@dataclass(frozen=True)
class Wanted:
    """The parameters of a request."""

    start: Position | None
    last: int | None
    limit: int


def _number(name: str, text: str | None, most: int, faults: list[Violation]) -> int | None:
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= most:
        return int(text)
    faults.append(
        Violation(
            f"/{name}", FaultCode.NOT_A_NUMBER, f"{name} {text[:50]!r} is no number from 1 to {most}", "correct it"
        )
    )
    return None


def _max_results(text: str | None, faults: list[Violation]) -> int | None:
    if text is None or (re.fullmatch("[+-]?[0-9]{1,1000}", text) and is_of_64_bits(int(text))):
        return None if text is None else int(text)
    message = f"maxResults {text[:50]!r} is no number"
    faults.append(Violation("/maxResults", FaultCode.NOT_A_NUMBER, message, "send a number, or leave it out"))
    return None


def _position(name: str, text: str | None, faults: list[Violation]) -> Position | None:
    position = Position.parse(text) if text else None
    if text and position is None:
        fix = "send one that an answer of this route gave, or none"
        faults.append(
            Violation(f"/{name}", FaultCode.NOT_A_POSITION, f"{(text or '')[:50]!r} is no place in a changelog", fix)
        )
    return position


async def _wanted(
    from_snapshot: Annotated[
        str | None,
        _SNAPSHOT,
        Query(alias="fromSnapshot", description="the first snapshot; without it the earliest kept"),
    ] = None,
    to_snapshot: Annotated[
        str | None, _SNAPSHOT, Query(alias="toSnapshot", description="the last snapshot; without it the current one")
    ] = None,
    max_results: Annotated[
        str | None,
        WithJsonSchema({"type": "integer"}),
        Query(alias="maxResults", description=f"{size_words(*_PAGE)} Events have no pages."),
    ] = None,
    page_token: Annotated[
        str | None,
        Query(alias="pageToken", description="the Next-Page-Token of the page before; goes before fromSnapshot"),
    ] = None,
    last_event_id: Annotated[
        str | None, Header(description="the id of the last event that was received; goes before fromSnapshot")
    ] = None,
) -> Wanted:
    """Return the parameters. Raise ``Invalid`` with all their faults."""
    faults: list[Violation] = []
    first = _number("fromSnapshot", from_snapshot, 10**9 - 1, faults)
    last = _number("toSnapshot", to_snapshot, 10**9 - 1, faults)
    limit = _max_results(max_results, faults)
    token = _position("pageToken", page_token, faults)
    event = _position("Last-Event-ID", last_event_id, faults)
    faults += check_range(first, last)
    if faults:
        message = faults[0].message if len(faults) == 1 else f"the request has {len(faults)} faults"
        raise Invalid(message, violations=faults)
    start = event or token or (None if first is None else Position(first))
    return Wanted(start, last, page_size(limit, *_PAGE))


@router.get(
    "/changelog",
    operation_id="getChangelog",
    response_class=Response,
    responses={
        200: {
            "description": "changes",
            "headers": headers("Vary", "Preference-Applied", "Keyfold-Snapshot", "Next-Page-Token", "Link"),
            "content": {NDJSON: _TEXT, ARROW: _BYTES, EVENTS: _TEXT},
        },
        **problems(409),
    },
)
async def get_changelog(
    name: FullName,
    wanted: Annotated[Wanted, Depends(_wanted)],
    request: Request,
    catalog: DatabaseDep,
    warehouse: WarehouseDep,
    heads: HeadsDep,
    spelling: SpellingDep = USUAL,
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """Return changes of rows from ``fromSnapshot`` to ``toSnapshot``, both included: ``_kind``, ``_snapshot``, columns.

    Within a snapshot they are in the order of token and key, -U before +U. NDJSON and Arrow come in pages. Server-sent
    events are live and endless: they begin after the current snapshot, unless fromSnapshot or Last-Event-ID is set.
    """
    kind = chosen(accept, _TYPES)
    lines = partial(lines_of, requested=spelling.integers)
    if kind == EVENTS:
        table, start = await run_in_threadpool(follow_from, catalog, name, wanted.start)
        check_reader = partial(check_again, request, *name)
        following = Following(catalog, warehouse, table, heads, start, wanted.last, check_reader)
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **spelling.headers}
        return EventSourceResponse(events(request, following, lines), headers=headers)
    page = await run_in_threadpool(
        read_page, catalog, warehouse, name, wanted.start, wanted.last, wanted.limit, one_schema=kind == ARROW
    )
    body = await run_in_threadpool(as_arrow, page) if kind == ARROW else await run_in_threadpool(_ndjson, page, lines)
    return Response(body, media_type=kind, headers=_headers(request, page) | spelling.headers)


def _headers(request: Request, page: Page) -> dict[str, str]:
    headers = {"Keyfold-Snapshot": str(page.last_snapshot)}
    if page.rest is None:
        return headers
    parameters = [
        (name, value) for name, value in request.query_params.multi_items() if name in ("maxResults", "integers")
    ]
    query = urlencode([("pageToken", page.rest.text), ("toSnapshot", page.last_snapshot), *parameters])
    return headers | {"Next-Page-Token": page.rest.text, "Link": f'<{sent_path(request)}?{query}>; rel="next"'}


def lines_of(changes: Changes, requested: Integers | None = None) -> Iterator[str]:
    """Yield each change as JSON, with BIGINT in the ``requested`` form; columns that a record does not name are left
    out.
    """
    schema = changes.table.schema
    integers = integers_of(schema, requested)
    encoders = [(column.name, encoder_of(column.type, integers)) for column in schema.columns]
    for kind, row in changes.rows:
        values = {name: encode(row[name]) for name, encode in encoders if name in row}
        metadata = {"_kind": kind.text, "_snapshot": changes.start.snapshot}
        yield json.dumps(metadata | values, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _ndjson(page: Page, lines: Lines) -> bytes:
    return "".join(f"{line}\n" for changes in page.changes for line in lines(changes)).encode()
