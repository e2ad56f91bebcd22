"""``POST T/batches``, and the state of batches."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from email.message import Message
from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import Field

from app.api.document.components import headers
from app.api.document.payloads import described_as
from app.api.middleware.audit import NotesDep
from app.api.middleware.routing import Router
from app.api.middleware.signed import SIGNED_ID
from app.api.routes.batches.patience import with_retries
from app.api.routes.tables.schema_changes import SchemaChange
from app.api.shared.answers import Answer, EpochMillis, From, NextPageToken, Payload
from app.api.shared.deps import GRANT, Parts, PartsDep, in_writers_thread, parts_of
from app.api.shared.paging import WantedPage
from app.api.shared.paths import TABLE_PATH, FullName, batch_location
from app.api.shared.preferences import preference
from app.api.shared.problems import PROBLEM_RESPONSES, problems
from app.api.shared.slashes import register_convertors
from app.api.shared.transactions import Reading, TableDep
from app.core.access import Role
from app.core.errors import DamagedCatalog, Unavailable, UnsupportedMediaType
from app.core.plan.records.faulty_events import OnFault
from app.core.plan.records.record_decoder import Note
from app.core.plan.records.unknown_columns import UnknownColumns
from app.core.table import history
from app.http.uploads import ROOM, SPOOLED, stage
from app.services.batches.batches import (
    Accepted,
    BatchOrder,
    Change,
    Upload,
    current_batch,
    list_batches,
    retry_batch,
    withdraw_batch,
)
from app.services.batches.staged_uploads import MAX_KEY_LENGTH
from app.services.bodies.change_events import EVENT_FORMATS
from app.services.bodies.formats import CSV, FORMATS, JSON, NDJSON, EmptyFields
from app.services.merging.merges import request_merge
from app.services.shared.unavailable import UNAVAILABLE

logger = logging.getLogger(__name__)
register_convertors()
router = Router(prefix=f"{TABLE_PATH}/batches", tags=["batches"], responses=PROBLEM_RESPONSES)
MAX_WAIT_SECONDS = 60.0
LOOK_AGAIN_SECONDS = "1"  # Retry-After of a 202: when to check the state of the batch
REPLAYED_HEADER = "Idempotency-Replayed"
_WAIT_STEP_SECONDS = 0.05
_UTF_8 = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})  # as charsets of a Content-Type


class BatchWarning(Payload):
    """A warning about accepted records, with their number."""

    code: Note
    count: int = Field(description="how many records or events")
    detail: str
    fix: str


_WARNINGS: Mapping[Note, tuple[str, str]] = {
    Note.WITHOUT_SEQUENCE: (
        "{} records have no value of sequence.field, so they lose to every record that has one",
        "send the sequence with each record, deletes too",
    ),
    Note.SKIPPED_EVENTS: (
        "{} events are no rows (heartbeats, marks, changes of schemas, messages, tombstones) and were skipped",
        "nothing: no row is in them",
    ),
    Note.NULL_OR_DEFAULT: (
        "{} events come from a converter that sends the default of a column for null, so nulls may be stored as it",
        "set debezium.format.value.replace.null.with.default=false",
    ),
}


def batch_warnings(notes: Mapping[Note, int]) -> list[BatchWarning]:
    """Return one warning for each note, with its count."""
    return [
        BatchWarning(code=note, count=count, detail=_WARNINGS[note][0].format(count), fix=_WARNINGS[note][1])
        for note, count in notes.items()
    ]


class IgnoredColumn(Payload):
    """A column that the table does not have; its values were left out."""

    name: str
    records: int = Field(description="records that have it")


def ignored_columns(counts: Mapping[str, int] | None) -> list[IgnoredColumn]:
    """Return the columns with their counts."""
    return [IgnoredColumn(name=name, records=count) for name, count in (counts or {}).items()]


class Batch(Answer):
    """One accepted batch; times are epoch milliseconds."""

    id: str
    number: int
    state: history.BatchState
    records: int
    ignored_records: Annotated[int, From("ignored")]
    size_bytes: int
    idempotency_key: str | None
    accepted_at: EpochMillis
    accepted_by: str = Field(description="the name of the token that it was sent with, empty where none was needed")
    merge_id: str | None
    snapshot_id: int | None
    fault: str | None = Field(description="why it is set aside: withdraw it, or have it retried")
    ignored_columns: Annotated[list[IgnoredColumn], From(lambda batch: ignored_columns(batch.ignored_columns))] = Field(
        description="with unknownColumns=ignore: columns that were left out, the first hundred"
    )
    changes: Annotated[list[Annotated[Any, described_as(SchemaChange)]], From(lambda _: [])] = Field(
        default_factory=list,
        description="with unknownColumns=add: how the table was altered first; only of the request that sent it",
    )
    set_aside_events: Annotated[int, From(lambda _: 0)] = Field(
        0,
        description="with onFault=set-aside: events with faults, none of whose records are in the batch; only of "
        "the request that sent them",
    )
    warnings: Annotated[list[BatchWarning], From(lambda _: [])] = Field(
        default_factory=list, description="what may surprise about its records; only of the request that sent them"
    )


class BatchList(Answer):
    """One page of a table's batches, newest first by default."""

    batches: Annotated[list[Batch], From("items")]
    next_page_token: NextPageToken


async def whole_body(request: Request) -> bytes:
    """Return the request's body; ``app.api.middleware.limits`` has read and bounded it."""
    return await request.body()


def _wait_seconds(prefer: str | None) -> float:
    """Return the seconds of ``Prefer: wait=n`` (RFC 7240); 0 if it is absent or not understood."""
    wait = preference(prefer, "wait") or ""
    return min(float(wait), MAX_WAIT_SECONDS) if wait.isascii() and wait.isdigit() else 0.0


_DESCRIBED = {
    media_type: {"schema": entry.schema} for media_type, entry in FORMATS.items() if media_type not in NDJSON[1:]
}
_REQUEST_BODY = {"requestBody": {"required": True, "content": _DESCRIBED}}


# Its length is checked with the body, so that one answer reports all that is wrong.
IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", json_schema_extra={"minLength": 1, "maxLength": MAX_KEY_LENGTH}),
]
_EVENTS = f"of change events in a JSON body: {', '.join(EVENT_FORMATS)}"
_UNAVAILABLE = "what change events have in place of a value that did not change (unavailable.value.placeholder)"
_UNKNOWN_COLUMNS = (
    "what to do with columns that the table does not have: refuse the request, ignore (they are counted in "
    "ignoredColumns), or add them to the table, of JSON, which needs a token that may alter it"
)
_ON_FAULT = (
    "what to do with change events that have faults: refuse the request, or set them aside (GET …/set-aside-events "
    "lists them) and store the others, in a table that orders its events"
)
_EMPTY = "the meaning of an empty CSV field: null, or absent (only with record.absent-columns = unchanged)"


_HEADERS = headers("Location", "Preference-Applied", REPLAYED_HEADER)
# Paimon's clients do not know 422, so only requests with an Idempotency-Key get it.
ACCEPTED: dict[int | str, dict[str, Any]] = {
    200: {"model": Batch, "headers": _HEADERS, "description": "merged"},
    202: {"headers": _HEADERS, "description": "durable"},
    **problems(409, 422),
}


async def _merged(parts: Parts, batches: Sequence[history.Batch], seconds: float) -> list[history.Batch]:
    """Return the batches as soon as all are merged, or in their present state after ``seconds``, or when the service
    stops. Waiting holds no thread.
    """
    deadline = time.monotonic() + seconds
    now = list(batches)
    try:
        for batch in batches:
            await in_writers_thread(parts, request_merge, parts.database, batch.table_id)
        for place in range(len(now)):
            while now[place].state is history.BatchState.STAGED:
                if time.monotonic() >= deadline or parts.heads.stopped:
                    return now
                await asyncio.sleep(min(_WAIT_STEP_SECONDS, max(0.0, deadline - time.monotonic())))
                now[place] = await run_in_threadpool(current_batch, parts.database, now[place])
    except (Unavailable, DamagedCatalog):
        ids = [batch.id for batch in batches]
        logger.info("it is unknown now whether batches %s are merged; they are accepted", ids, exc_info=True)
    return now


def _media_type(content_type: str) -> str:
    """Return the media type alone. Raise ``UnsupportedMediaType`` for CSV in another charset: its bytes may be UTF-8
    for another text.
    """
    media_type = content_type.split(";", maxsplit=1)[0].strip().lower()
    if media_type == CSV:
        parsed = Message()
        parsed["content-type"] = content_type
        charset = parsed.get_content_charset("utf-8")
        if charset not in _UTF_8:
            raise UnsupportedMediaType(f"cannot read CSV in the charset {charset[:100]!r}; send it in UTF-8")
    return media_type


async def _sent(
    request: Request,
    idempotency_key: IdempotencyKey = None,
    content_encoding: Annotated[str, Header(description="gzip or zstd, of the body")] = "",
    events: Annotated[str | None, Query(alias="format", description=_EVENTS)] = None,
    unavailable: Annotated[str, Query(min_length=1, max_length=200, description=_UNAVAILABLE)] = UNAVAILABLE,
    unknown: Annotated[
        UnknownColumns, Query(alias="unknownColumns", description=_UNKNOWN_COLUMNS)
    ] = UnknownColumns.REFUSE,
    on_fault: Annotated[OnFault, Query(alias="onFault", description=_ON_FAULT)] = OnFault.REFUSE,
) -> Upload:
    return Upload(
        request.scope[SPOOLED],
        _media_type(request.headers.get("content-type", JSON)),
        request.scope.get(SIGNED_ID) if idempotency_key is None else idempotency_key,
        content_encoding,
        events,
        unavailable,
        request.scope[ROOM],
        sender=request.scope[GRANT].name,
        unknown_columns=unknown,
        schema_bounds=parts_of(request).settings.catalog_bounds.table,
        on_fault=on_fault,
    )


# The body of a request with the parameters that say how it is read, for one or more tables.
Sent = Annotated[Upload, Depends(_sent)]


@router.post("", status_code=202, operation_id="postBatch", openapi_extra=_REQUEST_BODY, responses=ACCEPTED)
async def post_batch(
    name: FullName,
    request: Request,
    response: Response,
    sent: Sent,
    parts: PartsDep,
    prefer: Annotated[str | None, Header()] = None,
    empty_fields: Annotated[EmptyFields, Query(alias="emptyFields", description=_EMPTY)] = EmptyFields.NULL,
) -> Batch:
    """Stage records, all or nothing: 202 once they are durable; with ``Prefer: wait=n`` 200 if they are merged in
    time.

    A repeated request with the same ``Idempotency-Key`` returns the first batch, with ``Idempotency-Replayed: true``.
    Another request with that key is refused with 422, and one during the first request with 409.
    """
    if sent.unknown_columns is UnknownColumns.ADD:
        request.scope[GRANT].check_table(Role.ADMIN, *name)
    upload = replace(sent, empty_fields=empty_fields, table=name[1])
    return await accepted(request, response, parts, name, upload, prefer)


async def accepted(
    request: Request, response: Response, parts: Parts, name: tuple[str, str], change: Change, prefer: str | None
) -> Batch:
    """Stage ``change`` and return its batch once it is durable, or merged if preferred. Set status and headers."""
    done = await with_retries(parts, change.idempotency_key, stage, parts, name, change)
    return await batch_answer(request, response, parts, done, prefer)


async def batch_answer(request: Request, response: Response, parts: Parts, done: Accepted, prefer: str | None) -> Batch:
    """Return the accepted batch, merged if that is preferred and done in time. Set status and headers."""
    [batch] = await preferred(response, parts, [done.batch], prefer, replayed=done.replayed)
    response.headers["Location"] = batch_location(request, batch.id)
    return Batch.from_value(
        batch, changes=list(done.changes), set_aside_events=done.set_aside, warnings=batch_warnings(done.notes)
    )


async def preferred(
    response: Response, parts: Parts, batches: Sequence[history.Batch], prefer: str | None, *, replayed: bool
) -> list[history.Batch]:
    """Return the accepted batches, merged if that is preferred and done in time. Set status and headers."""
    if replayed:
        response.headers[REPLAYED_HEADER] = "true"
    now, wait = list(batches), _wait_seconds(prefer)
    if wait:
        now = await _merged(parts, batches, wait)
        response.headers["Preference-Applied"] = f"wait={wait:g}"
        response.status_code = 200 if all(batch.state is history.BatchState.MERGED for batch in now) else 202
    if response.status_code != 200:
        response.headers["Retry-After"] = LOOK_AGAIN_SECONDS
    return now


@router.get("", operation_id="listBatches")
def get_batches(
    table: TableDep,
    repository: Reading,
    wanted: WantedPage,
    state: Annotated[history.BatchState | None, Query(description="only batches in this state")] = None,
    order: Annotated[BatchOrder, Query(description="which batch comes first, by number")] = BatchOrder.NEWEST,
) -> BatchList:
    """List the table's batches, newest first or oldest first; a page token is only valid for its order."""
    return BatchList.from_value(list_batches(repository, table, wanted, state, order))


@router.get("/{batch_id:id}", operation_id="getBatch")
def get_batch(table: TableDep, batch_id: str, repository: Reading) -> Batch:
    """Return one batch."""
    return Batch.from_value(repository.batches.get(table.id, batch_id))


@router.delete("/{batch_id:id}", operation_id="deleteBatch", responses=problems(409))
async def delete_batch(name: FullName, batch_id: str, parts: PartsDep, notes: NotesDep) -> Batch:
    """Withdraw a batch while it is staged."""
    notes.add(batch=batch_id)
    batch = await in_writers_thread(parts, withdraw_batch, parts.database, parts.warehouse, name, batch_id)
    return Batch.from_value(batch)


@router.post("/{batch_id:id}:retry", operation_id="retryBatch", responses=problems(409))
async def post_retry(name: FullName, batch_id: str, parts: PartsDep, notes: NotesDep) -> Batch:
    """Stage a batch that was set aside again, under the next number, as if it had arrived now."""
    notes.add(batch=batch_id)
    return Batch.from_value(await in_writers_thread(parts, retry_batch, parts.database, name, batch_id))
