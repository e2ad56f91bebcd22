"""``PUT``, ``PATCH`` and ``DELETE T/rows/{key}``: batches of one record."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Header, Query, Request, Response

from app.api.document.components import schema as component
from app.api.middleware.routing import Router
from app.api.routes.batches.batches import ACCEPTED, Batch, IdempotencyKey, accepted, whole_body
from app.api.shared.deps import GRANT, Parts, PartsDep, inline
from app.api.shared.paths import TABLE_PATH, FullName
from app.api.shared.problems import PROBLEM_RESPONSES
from app.api.shared.slashes import register_convertors
from app.core.errors import UnsupportedMediaType
from app.services.batches.row_changes import RowChange, RowMethod
from app.services.bodies.formats import JSON

register_convertors()
router = Router(prefix=f"{TABLE_PATH}/rows", tags=["rows"], responses=PROBLEM_RESPONSES)

Body = Annotated[bytes, Depends(whole_body)]
Keys = Annotated[list[str], Query(alias="key", description="one value per primary-key column, in primary-key order")]
Prefer = Annotated[str | None, Header()]


Sequence = Annotated[
    list[str] | None,
    Query(
        alias="sequence",
        description="the values of the table's sequence.field, in its order; instead of members of the body",
    ),
]


class _RowRequest:
    """The parameters of all these routes in addition to the key."""

    def __init__(
        self,
        name: FullName,
        request: Request,
        response: Response,
        body: Body,
        parts: PartsDep,
        sequence: Sequence = None,
        idempotency_key: IdempotencyKey = None,
        prefer: Prefer = None,
    ) -> None:
        self.name, self.request, self.response, self.body = name, request, response, body
        self.parts: Parts = parts
        self.idempotency_key, self.prefer, self.sequence = idempotency_key, prefer, tuple(sequence or ())

    async def answer(self, key: tuple[str, ...], method: RowMethod) -> Batch:
        """Return the batch of one record, as ``POST T/batches`` answers it."""
        change = RowChange(key, self.body, method, self.idempotency_key, self.request.scope[GRANT].name, self.sequence)
        return await accepted(self.request, self.response, self.parts, self.name, change, self.prefer)


RowRequest = Annotated[_RowRequest, Depends(inline(_RowRequest))]


MERGE_PATCH = "application/merge-patch+json"


def _described(columns: str, *media_types: str, needed: bool) -> dict[str, object]:
    schema = {**component("Columns"), "description": columns}
    content = {media_type: {"schema": schema} for media_type in media_types or (JSON,)}
    return {"requestBody": {"required": needed, "content": content}}


_PUT = _described(
    "the columns of the row; key columns may be left out. One that is left out is null to it, or with "
    "`record.absent-columns` = `unchanged` stays as it is",
    needed=True,
)
_PATCH = _described(
    "the columns to set, null to clear one; every column that is left out stays as it is. Columns of a sequence group "
    "need its ordering fields, too. Only of a table with `record.absent-columns` = `unchanged`",
    MERGE_PATCH,
    JSON,
    needed=True,
)
_DELETE = _described("columns of the -D record other than its key, such as a sequence field", needed=False)


@router.put("", status_code=202, operation_id="putRow", openapi_extra=_PUT, responses=ACCEPTED)
async def put_row_by_query(sent: RowRequest, key: Keys) -> Batch:
    """Upsert one row: ``?key=`` once per key column, in primary-key order; it takes any character."""
    return await sent.answer(tuple(key), RowMethod.PUT)


@router.put("/{key:key}", status_code=202, operation_id="putRowByPath", openapi_extra=_PUT, responses=ACCEPTED)
async def put_row_by_path(sent: RowRequest, key: str) -> Batch:
    """Upsert one row of a table with a single key column."""
    return await sent.answer((key,), RowMethod.PUT)


async def patching(request: Request) -> None:
    """Raise ``UnsupportedMediaType`` if the body is not a merge patch (RFC 7396)."""
    media_type = request.headers.get("Content-Type", JSON).split(";")[0].strip().lower()
    if media_type not in (MERGE_PATCH, JSON):
        raise UnsupportedMediaType(f"cannot patch a row by {media_type[:100]!r}; send {MERGE_PATCH}")


@router.patch(
    "",
    status_code=202,
    operation_id="patchRow",
    openapi_extra=_PATCH,
    responses=ACCEPTED,
    dependencies=[Depends(patching)],
)
async def patch_row_by_query(sent: RowRequest, key: Keys) -> Batch:
    """Set the columns that the body names, null to clear one: ``?key=`` once per key column, in primary-key order."""
    return await sent.answer(tuple(key), RowMethod.PATCH)


@router.patch(
    "/{key:key}",
    status_code=202,
    operation_id="patchRowByPath",
    openapi_extra=_PATCH,
    responses=ACCEPTED,
    dependencies=[Depends(patching)],
)
async def patch_row_by_path(sent: RowRequest, key: str) -> Batch:
    """Set the columns that the body names, in a table with a single key column."""
    return await sent.answer((key,), RowMethod.PATCH)


@router.delete("", status_code=202, operation_id="deleteRow", openapi_extra=_DELETE, responses=ACCEPTED)
async def delete_row_by_query(sent: RowRequest, key: Keys) -> Batch:
    """Post a -D record for one row: ``?key=`` once per key column, in primary-key order."""
    return await sent.answer(tuple(key), RowMethod.DELETE)


@router.delete("/{key:key}", status_code=202, operation_id="deleteRowByPath", openapi_extra=_DELETE, responses=ACCEPTED)
async def delete_row_by_path(sent: RowRequest, key: str) -> Batch:
    """Post a -D record for one row of a table with a single key column."""
    return await sent.answer((key,), RowMethod.DELETE)
