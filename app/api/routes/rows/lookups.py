"""Lookups of one row, for the documented routes and for ``direct_rows``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anyio.to_thread import run_sync
from fastapi import Request, Response
from starlette.types import Scope

from app.api.middleware.conditions import REVALIDATE, VARY, is_known
from app.api.shared.deps import Parts
from app.api.shared.preferences import USUAL, Spelling
from app.api.shared.problems import refusal
from app.core.errors import ErrorCode, FaultCode, Invalid, NotFound, Violation
from app.services.rows.kept_views import Name
from app.services.rows.lookups import Consistency, FoundRow, imaged_row, row_of, spelled, view_at
from app.services.rows.views import View

# The last is the number of batches that are set aside, if any.
SEEN_HEADERS = ("Keyfold-Table", "Keyfold-Schema", "Keyfold-Snapshot", "Keyfold-Batch", "Keyfold-Set-Aside")
_TABLE, _SCHEMA, _SNAPSHOT, _BATCH, _SET_ASIDE = (name.lower().encode() for name in SEEN_HEADERS)
Headers = list[tuple[bytes, bytes]]


def _encoded(headers: Mapping[str, str]) -> Headers:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


@dataclass(frozen=True)
class Lookup:
    """A lookup of one row in the table ``name``; ``texts`` are its key values in primary-key order."""

    name: Name
    texts: Sequence[str]
    columns: Sequence[str] | None = None
    consistency: Consistency | None = None
    version: str | None = None
    after: str | None = None
    spelling: Spelling = USUAL


@dataclass(frozen=True)
class RowAnswer:
    """The status, headers and bytes of an answer."""

    status: int
    headers: Headers
    body: bytes

    def response(self) -> Response:
        """Return the answer as FastAPI's response."""
        response = Response(self.body, self.status)
        response.raw_headers = self.headers
        return response


async def answer_row(parts: Parts, lookup: Lookup, scope: Scope, if_none_match: str | None) -> RowAnswer:
    """Return the answer: the row, 304 if it is unchanged, or 404. It runs on the event loop if nothing must be read.

    Raise ``Invalid`` for a key or columns that the schema does not have and for parameters that contradict each other,
    ``NotFound`` for the table, the snapshot or the batch.
    """
    view = await _view(parts, lookup)
    by_image = True
    try:
        row = imaged_row(view, parts.images, lookup.texts, lookup.columns, lookup.version)
        if row is None:
            by_image = False
            wanted = (view, parts.images, lookup.texts, lookup.columns, lookup.version)
            row = await run_sync(row_of, *wanted, limiter=parts.lookups)
    except NotFound as error:
        if error.code is not ErrorCode.ROW_NOT_FOUND:
            raise
        parts.database.metrics.looked_up(by_image)
        response = refusal(Request(scope), error)
        return RowAnswer(response.status_code, [*response.raw_headers, *_seen(view, lookup)], bytes(response.body))
    parts.database.metrics.looked_up(by_image)
    return _row_answer(row, view, lookup, if_none_match)


def _row_answer(row: FoundRow, view: View, lookup: Lookup, if_none_match: str | None) -> RowAnswer:
    # The tag of a current row changes only with the row, not with other merges; that of a snapshot belongs to it.
    body, tag = spelled(row, lookup.spelling.integers)
    etag = f'"{tag}"' if lookup.version is None else f'"{tag}-{row.snapshot_id}"'
    headers = [(b"etag", etag.encode()), REVALIDATE, VARY, *_seen(view, lookup)]
    if if_none_match is not None and is_known(if_none_match, etag):
        return RowAnswer(304, headers, b"")
    length = (b"content-length", str(len(body)).encode())
    return RowAnswer(200, [length, (b"content-type", b"application/json"), *headers], body)


def _seen(view: View, lookup: Lookup) -> Headers:
    """Return headers with the table, its schema, the snapshot and the batches of the answer. Batches are counted only
    of the current snapshot.
    """
    applied = () if lookup.spelling is USUAL else _encoded(lookup.spelling.headers)
    table, snapshot = view.table, str(view.snapshot_id or 0).encode()
    seen = [(_TABLE, table.id.encode()), (_SCHEMA, str(table.schema_id).encode()), (_SNAPSHOT, snapshot), *applied]
    if lookup.version is not None:
        return seen
    seen.append((_BATCH, str(view.last_batch).encode()))
    return [*seen, (_SET_ASIDE, str(view.set_aside).encode())] if view.set_aside else seen


def seen_headers(view: View, lookup: Lookup) -> dict[str, str]:
    """Return the headers of ``_seen`` for FastAPI's own responses."""
    return {name.decode(): value.decode() for name, value in _seen(view, lookup)}


def names_in(columns: str | None) -> list[str] | None:
    """Return the names in the parameter ``columns``; None if there are none."""
    return [name for name in (columns or "").split(",") if name] or None


def view_now(parts: Parts, lookup: Lookup) -> View:
    """Return the view that the lookup reads; this may read the catalog and files. Raise as ``answer_row``."""
    if lookup.version is None:
        return parts.views.current(lookup.name, lookup.consistency)
    _check_version(lookup)
    with parts.database.reading() as repository:
        return view_at(repository, repository.tables.get(*lookup.name), lookup.version)


async def _view(parts: Parts, lookup: Lookup) -> View:
    if lookup.after is not None and lookup.version is None:
        return await parts.awaited.view_after(lookup.name, lookup.after, lookup.consistency)
    known = parts.views.recall(lookup.name, lookup.consistency) if lookup.version is None else None
    return known if known is not None else await run_sync(view_now, parts, lookup, limiter=parts.lookups)


def _check_version(lookup: Lookup) -> None:
    """Raise ``Invalid`` for parameters that a lookup in an earlier snapshot cannot have."""
    faults = []
    if lookup.consistency is Consistency.LATEST:
        message = "consistency=latest folds what is staged now on top of the current snapshot, not of an earlier one"
        fix = "leave out snapshot or consistency"
        faults.append(Violation("", FaultCode.CONTRADICTING_PARAMETERS, message, fix))
    if lookup.after is not None:
        message = "after=<batch> waits for a later commit, and an earlier snapshot never changes"
        faults.append(Violation("", FaultCode.CONTRADICTING_PARAMETERS, message, "leave out snapshot or after"))
    if faults:
        raise Invalid(faults[0].message, violations=faults)
