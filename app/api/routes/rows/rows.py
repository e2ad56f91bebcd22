"""``T/rows``: lookups by primary key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import Header, Query, Request, Response
from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator

from app.api.document.components import Key, Row, headers
from app.api.document.payloads import Names, first_fault_of
from app.api.middleware.negotiation import JSON, chosen
from app.api.middleware.routing import Router
from app.api.routes.rows.lookups import (
    SEEN_HEADERS,
    Lookup,
    answer_row,
    names_in,
    seen_headers,
    view_now,
)
from app.api.shared.answers import OwnBody, Payload
from app.api.shared.deps import Parts, PartsDep
from app.api.shared.json_bodies import JsonRoute
from app.api.shared.paths import TABLE_PATH, FullName
from app.api.shared.preferences import USUAL, SpellingDep
from app.api.shared.problems import PROBLEM_RESPONSES, problems
from app.api.shared.slashes import register_convertors
from app.core.errors import FaultCode, Invalid, Violation
from app.services.rows.lookups import Consistency, Images
from app.services.rows.many_lookups import KeysRequest, read_keys, rows_as_arrow, rows_as_json

register_convertors()
router = Router(route_class=JsonRoute, prefix=TABLE_PATH, tags=["rows"], responses=PROBLEM_RESPONSES)

Keys = Annotated[list[str], Query(alias="key", description="one value per primary-key column, in primary-key order")]
Columns = Annotated[str | None, Query(description="comma-separated columns to answer")]
Wanted = Annotated[
    Consistency | None,
    Query(
        description="latest: the current snapshot with staged records on top; merged: the snapshot alone. Default:"
        " the table's lookup.consistency, or else that of the service, latest"
    ),
]
After = Annotated[
    str | None,
    Query(description="a batch's id: the answer waits until that batch is in it, for a minute at most"),
]
Version = Annotated[
    str | None,
    Query(
        alias="snapshot",
        description="a snapshot's number or a tag: the row at that time, with its columns at that time",
    ),
]


MOST_KEYS = 10_000
ARROW = "application/vnd.apache.arrow.stream"


def _as_sent(sent: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """Return the JSON objects as they are, without copying their members: the declared type needs no check."""
    objects = isinstance(sent, list) and len(sent) <= MOST_KEYS and all(type(key) is dict for key in sent)
    return sent if objects else read(sent)


class KeyList(OwnBody):
    """Up to 10,000 keys, each an object of the primary-key columns."""

    keys: Annotated[list[Key], first_fault_of(list[dict[str, Any]]), WrapValidator(_as_sent)] = Field(
        max_length=MOST_KEYS
    )
    columns: Names | None = Field(None, description="columns to answer, by default all; instead of the parameter")


class RowAnswer(Payload):
    """The answer for one key, in the place of the key: ``row`` is null if there is none."""

    key: Key
    found: bool
    row: Row | None


class RowAnswers(Payload):
    """Answers in request order, all from one snapshot."""

    rows: list[RowAnswer]
    snapshot_id: int | None


SEEN = ("Vary", "Preference-Applied", *SEEN_HEADERS)
_ROW_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"headers": headers("ETag", *SEEN)},
    304: {"description": "the row is the one whose ETag was sent", "headers": headers("ETag", *SEEN)},
    **problems(409),
}


@router.get("/rows", operation_id="getRow", response_model=Row, responses=_ROW_ANSWERS)
async def get_row_by_query(
    name: FullName,
    parts: PartsDep,
    request: Request,
    key: Keys,
    columns: Columns = None,
    consistency: Wanted = None,
    snapshot: Version = None,
    after: After = None,
    spelling: SpellingDep = USUAL,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Return one row by primary key: ``?key=`` once per key column, in primary-key order; it takes any character."""
    lookup = Lookup(name, key, names_in(columns), consistency, snapshot, after, spelling)
    return (await answer_row(parts, lookup, request.scope, if_none_match)).response()


@router.get("/rows/{key:key}", operation_id="getRowByPath", response_model=Row, responses=_ROW_ANSWERS)
async def get_row_by_path(
    name: FullName,
    key: str,
    parts: PartsDep,
    request: Request,
    columns: Columns = None,
    consistency: Wanted = None,
    snapshot: Version = None,
    after: After = None,
    spelling: SpellingDep = USUAL,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Return one row of a table with a single key column; keys that a path cannot carry need ``/rows?key=``."""
    lookup = Lookup(name, [key], names_in(columns), consistency, snapshot, after, spelling)
    return (await answer_row(parts, lookup, request.scope, if_none_match)).response()


_RENDERED: Mapping[str, Callable[[Images, KeysRequest], bytes]] = {JSON: rows_as_json, ARROW: rows_as_arrow}
_TYPES = tuple(_RENDERED)


@router.post(
    "/rows:batchGet",
    operation_id="batchGetRows",
    response_model=RowAnswers,
    responses={
        200: {"headers": headers(*SEEN), "content": {ARROW: {"schema": {"type": "string", "format": "binary"}}}}
    },
)
async def batch_get_rows(
    name: FullName,
    body: KeyList,
    parts: PartsDep,
    columns: Columns = None,
    consistency: Wanted = None,
    snapshot: Version = None,
    spelling: SpellingDep = USUAL,
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """Return the rows of many keys, one answer for each key, in request order.

    With ``Accept`` for Arrow, return a stream with a row for each key: ``_kf_found``, the key columns and the others.
    """
    wanted = _wanted(names_in(columns), body.columns)
    lookup = Lookup(name, (), wanted, consistency, snapshot, spelling=spelling)
    return await run_sync(_answered, parts, lookup, body.keys, chosen(accept, _TYPES), limiter=parts.lookups)


def _wanted(by_parameter: list[str] | None, by_body: list[str] | None) -> list[str] | None:
    """Return the columns to answer. Raise ``Invalid`` if parameter and body both name some."""
    if by_parameter and by_body:
        message = "the request names columns twice: in its body and as a parameter"
        fault = Violation("/columns", FaultCode.CONTRADICTING_PARAMETERS, message, "leave out one of them")
        raise Invalid(message, violations=[fault])
    return by_parameter or by_body


def _answered(parts: Parts, lookup: Lookup, sent: Sequence[Mapping[str, Any]], kind: str) -> Response:
    view = view_now(parts, lookup)
    keys = read_keys(view, sent, lookup.columns, lookup.spelling.integers)
    return Response(_RENDERED[kind](parts.images, keys), media_type=kind, headers=seen_headers(view, lookup))
