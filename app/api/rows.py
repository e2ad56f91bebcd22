"""``T/rows``: lookups by primary key (design §6)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from app.api.answers import Payload
from app.api.deps import ImagesDep, Reading
from app.api.paths import TABLE_PATH, ReadTable
from app.api.problems import PROBLEM_RESPONSES
from app.api.slashes import register_keys
from app.services.lookups import Consistency, FoundRow, get_row, get_rows_of

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


class KeysBody(Payload):
    """Up to 1000 keys, each an object of the primary-key columns."""

    keys: list[dict[str, Any]] = Field(max_length=1000)


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


@router.post("/rows:batchGet", operation_id="batchGetRows", response_model=RowAnswers)
def batch_get_rows(
    table: ReadTable,
    body: KeysBody,
    repository: Reading,
    images: ImagesDep,
    columns: Columns = None,
    consistency: Wanted = Consistency.MERGED,
    snapshot: Version = None,
) -> JSONResponse:
    """The rows of many keys, answered in request order and never with a gap."""
    found, number = get_rows_of(repository, images, table, body.keys, consistency, _names(columns), snapshot)
    rows = [{"key": one.shown_key, "found": one.row is not None, "row": one.row} for one in found]
    return JSONResponse({"rows": rows, "snapshotId": number})
