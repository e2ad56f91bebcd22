"""``POST /databases/{database}/batches``: one request for several tables."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header, Query, Request, Response
from pydantic import Field

from app.api.document.components import headers
from app.api.middleware.routing import Router
from app.api.routes.batches.batches import (
    REPLAYED_HEADER,
    Batch,
    BatchWarning,
    Sent,
    batch_warnings,
    preferred,
)
from app.api.routes.batches.patience import with_retries
from app.api.shared.answers import Payload
from app.api.shared.deps import GRANT, PartsDep
from app.api.shared.paths import TABLES_BATCHES_PATH, DatabaseName
from app.api.shared.problems import PROBLEM_RESPONSES, problems
from app.core.plan.records.record_decoder import Note
from app.http.uploads import stage_tables
from app.services.batches.batches_of_tables import UnknownTables, UploadOfTables
from app.services.bodies.formats import CLOUDEVENTS, CLOUDEVENTS_BATCH, FORMATS, JSON, NDJSON

router = Router(prefix=TABLES_BATCHES_PATH, tags=["batches"], responses=PROBLEM_RESPONSES)


class BatchOfTable(Batch):
    """The batch of one of the tables."""

    table: str = Field(description="the name of the table")


class SkippedTable(Payload):
    """Records that were left out because no table takes them, by name."""

    name: str = Field(description="of the table, or of the table of the source that its events name")
    count: int = Field(description="how many records or events")


class BatchesOfTables(Payload):
    """The durable batches of one request."""

    batches: list[BatchOfTable] = Field(description="one for each table that the request has records for")
    skipped: list[SkippedTable] = Field(description="with unknownTables=skip: what no table takes")
    warnings: list[BatchWarning] = Field(description="what may surprise about events that are of no table")


_UNKNOWN = "what to do with records or events that no table takes"
_RECORDS = {"$ref": "#/components/schemas/RecordsByTable"}
_DESCRIBED = {
    JSON: {"schema": _RECORDS},
    **{kind: {"schema": FORMATS[kind].schema} for kind in (NDJSON[0], CLOUDEVENTS, CLOUDEVENTS_BATCH)},
}
_HEADERS = headers("Preference-Applied", REPLAYED_HEADER)
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": BatchesOfTables, "headers": _HEADERS, "description": "merged"},
    202: {"headers": _HEADERS, "description": "durable"},
    **problems(409, 422),
}


@router.post(
    "",
    status_code=202,
    operation_id="postDatabaseBatches",
    openapi_extra={"requestBody": {"required": True, "content": _DESCRIBED}},
    responses=_ANSWERS,
)
async def post_database_batches(
    database: DatabaseName,
    request: Request,
    response: Response,
    sent: Sent,
    parts: PartsDep,
    prefer: Annotated[str | None, Header()] = None,
    unknown: Annotated[UnknownTables, Query(alias="unknownTables", description=_UNKNOWN)] = UnknownTables.REFUSE,
) -> BatchesOfTables:
    """Stage records of several tables of a database, all or nothing: change events, which go to the tables with their
    source (``events.source``, or the same name), or records by table.

    A repeated ``Idempotency-Key`` has the same effect as in ``POST …/tables/{table}/batches``.
    """
    upload = UploadOfTables(sent, request.scope[GRANT], unknown)
    done = await with_retries(parts, upload.idempotency_key, stage_tables, parts, database, upload)
    now = await preferred(
        response, parts, [accepted_batch.batch for accepted_batch in done.batches], prefer, replayed=done.replayed
    )
    return BatchesOfTables(
        batches=[
            BatchOfTable.from_value(
                batch,
                table=accepted_batch.table,
                changes=list(accepted_batch.changes),
                set_aside_events=accepted_batch.set_aside,
                warnings=batch_warnings(accepted_batch.notes),
            )
            for batch, accepted_batch in zip(now, done.batches, strict=True)
        ],
        skipped=[SkippedTable(name=name, count=count) for name, count in done.skipped.items()],
        warnings=batch_warnings({Note.SKIPPED_EVENTS: done.no_rows} if done.no_rows else {}),
    )
