"""``T/rows``: lookups by primary key (design §6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from pydantic import Field

from app.api.answers import Payload
from app.api.deps import ImagesDep, Reading
from app.api.paths import TABLE_PATH, ReadTable
from app.api.payloads import first_fault_of
from app.api.problems import PROBLEM_RESPONSES
from app.api.slashes import register_keys
from app.services.lookups import Consistency, FoundRow, Images, get_row
from app.services.many_lookups import Asked, found_as_arrow, found_as_json, read_keys

register_keys()
router = APIRouter(prefix=TABLE_PATH, tags=["rows"], responses=PROBLEM_RESPONSES)
SNAPSHOT_HEADER = "Keyfold-Snapshot"

Keys = Annotated[list[str], Query(alias="key", description="one value per primary-key column, in primary-key order")]
Columns = Annotated[str | None, Query(description="comma-separated columns to answer")]
Wanted = Annotated[Consistency, Query(description="merged: the current snapshot; latest: also what is staged on top")]
Version = Annotated[
    str | None,
    Query(
        alias="snapshot",
        description="a snapshot's number or a tag: the row as it was then, with the columns of then",
    ),
]


MOST_KEYS = 10_000
JSON, ARROW = "application/json", "application/vnd.apache.arrow.stream"


class KeysBody(Payload):
    """Up to 10,000 keys, each an object of the primary-key columns."""

    keys: Annotated[list[dict[str, Any]], first_fault_of(list[dict[str, Any]])] = Field(max_length=MOST_KEYS)


class RowAnswer(Payload):
    """The answer for one key, in the place of the key: ``row`` is null where there is none."""

    key: dict[str, Any]
    found: bool
    row: dict[str, Any] | None


class RowAnswers(Payload):
    """Answers in request order, all of one snapshot."""

    rows: list[RowAnswer]
    snapshot_id: int | None


def _names(columns: str | None) -> list[str] | None:
    return [name for name in (columns or "").split(",") if name] or None


def _row_response(found: FoundRow, if_none_match: str | None, version: str | None) -> Response:
    # A current row keeps its tag while it does not change, whatever is merged; one of a snapshot is of that snapshot.
    etag = f'"{found.tag}"' if version is None else f'"{found.tag}-{found.snapshot_id}"'
    headers = {"ETag": etag, SNAPSHOT_HEADER: str(found.snapshot_id or 0)}
    known = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    if etag in known or known == ["*"]:
        return Response(status_code=304, headers=headers)
    return Response(found.body, media_type="application/json", headers=headers)


@router.get("/rows", operation_id="getRow", response_model=dict[str, Any])
def get_row_by_query(
    table: ReadTable,
    repository: Reading,
    images: ImagesDep,
    key: Keys,
    columns: Columns = None,
    consistency: Wanted = Consistency.MERGED,
    snapshot: Version = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """One row by primary key: ``?key=`` once per key column, in primary-key order; takes any character."""
    found = get_row(repository, images, table, key, consistency, _names(columns), snapshot)
    return _row_response(found, if_none_match, snapshot)


@router.get("/rows/{key:key}", operation_id="getRowByPath", response_model=dict[str, Any])
def get_row_by_path(
    table: ReadTable,
    key: str,
    repository: Reading,
    images: ImagesDep,
    columns: Columns = None,
    consistency: Wanted = Consistency.MERGED,
    snapshot: Version = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """One row of a table with a single key column; keys that a path cannot carry need ``/rows?key=``."""
    found = get_row(repository, images, table, [key], consistency, _names(columns), snapshot)
    return _row_response(found, if_none_match, snapshot)


_RENDERED: Mapping[str, Callable[[Images, Asked], bytes]] = {JSON: found_as_json, ARROW: found_as_arrow}


@router.post(
    "/rows:batchGet",
    operation_id="batchGetRows",
    response_model=RowAnswers,
    responses={200: {"content": {ARROW: {"schema": {"type": "string", "format": "binary"}}}}},
)
def batch_get_rows(
    table: ReadTable,
    body: KeysBody,
    repository: Reading,
    images: ImagesDep,
    columns: Columns = None,
    consistency: Wanted = Consistency.MERGED,
    snapshot: Version = None,
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """The rows of many keys, answered in request order and never with a gap.

    As an Arrow stream to those who accept that: a row for each key, ``_kf_found``, the key columns and the others.
    """
    asked = read_keys(repository, table, body.keys, consistency, _names(columns), snapshot)
    kind = _media_type(accept)
    return Response(
        _RENDERED[kind](images, asked), media_type=kind, headers={SNAPSHOT_HEADER: str(asked.snapshot_id or 0)}
    )


def _media_type(accept: str | None) -> str:
    """The first of ours that the header names, else JSON."""
    named = [part.split(";")[0].strip().lower() for part in (accept or "").split(",")]
    return next((name for name in named if name in _RENDERED), JSON)
