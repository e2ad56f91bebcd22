"""``T/set-aside-events``: change events with faults, which their table keeps (``onFault=set-aside``)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header, Query, Request, Response
from pydantic import Field

from app.api.document.components import headers
from app.api.middleware.audit import NotesDep
from app.api.middleware.routing import Router
from app.api.routes.batches.batches import Batch, IdempotencyKey, batch_answer
from app.api.routes.batches.patience import with_retries
from app.api.shared.answers import Answer, EpochMillis, From, NextPageToken
from app.api.shared.deps import GRANT, PartsDep
from app.api.shared.paging import WantedPage
from app.api.shared.paths import TABLE_PATH, FullName
from app.api.shared.problems import PROBLEM_RESPONSES, problems
from app.api.shared.slashes import register_convertors
from app.api.shared.transactions import Reading, TableDep, Writing
from app.core.errors import FaultCode
from app.http.uploads import stage_retried
from app.services.batches import set_aside_events as service

register_convertors()
_HEADERS = headers("Location", "Preference-Applied")
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": Batch, "headers": _HEADERS, "description": "merged"},
    202: {"headers": _HEADERS, "description": "durable"},
    **problems(409, 422),
}
router = Router(prefix=TABLE_PATH, tags=["batches"], responses=PROBLEM_RESPONSES)


class FaultOfEvent(Answer):
    """A fault of an event: its place (a JSON pointer into the event), the message and the fix."""

    pointer: str
    code: FaultCode
    detail: Annotated[str, From("message")]
    fix: str
    column: str | None


class SetAsideEvent(Answer):
    """A change event that its table keeps until it is retried or withdrawn; times are epoch milliseconds."""

    id: str
    number: int = Field(description="its place in the order in which events were set aside")
    format: str = Field(description="of the event, as ?format= names it, or cloudevents")
    event: Annotated[str, From("text")] = Field(description="the event as JSON")
    faults: list[FaultOfEvent] = Field(description="why it is not stored, as of the last try")
    times: int = Field(description="how often it was sent")
    batch_id: str = Field(description="the batch that the other events of its request became")
    set_aside_at: EpochMillis
    set_aside_by: str = Field(description="the name of the token that it was sent with, empty where none was needed")


class SetAsideEventList(Answer):
    """One page of a table's events that are set aside, oldest first."""

    events: Annotated[list[SetAsideEvent], From("items")]
    next_page_token: NextPageToken


@router.get("/set-aside-events", operation_id="listSetAsideEvents")
def get_set_aside_events(table: TableDep, repository: Reading, wanted: WantedPage) -> SetAsideEventList:
    """List the change events that are set aside because of their faults (``onFault=set-aside``), oldest first."""
    return SetAsideEventList.from_value(service.list_events(repository, table, wanted))


@router.get("/set-aside-events/{event_id:id}", operation_id="getSetAsideEvent")
def get_set_aside_event(table: TableDep, event_id: str, repository: Reading) -> SetAsideEvent:
    """Return one event that is set aside."""
    [event] = repository.set_aside_events.some(table.id, [event_id])
    return SetAsideEvent.from_value(event)


@router.delete("/set-aside-events/{event_id:id}", operation_id="withdrawSetAsideEvent")
def delete_set_aside_event(table: TableDep, event_id: str, repository: Writing, notes: NotesDep) -> SetAsideEvent:
    """Withdraw an event that is set aside, and delete it."""
    notes.add(event=event_id)
    return SetAsideEvent.from_value(service.withdraw_event(repository, table, event_id))


@router.post("/set-aside-events:retry", status_code=202, operation_id="retrySetAsideEvents", responses=_ANSWERS)
async def post_set_aside_events_retry(
    name: FullName,
    request: Request,
    response: Response,
    parts: PartsDep,
    ids: Annotated[
        list[str] | None, Query(alias="id", description="of the events; without any the first thousand are retried")
    ] = None,
    idempotency_key: IdempotencyKey = None,
    prefer: Annotated[str | None, Header()] = None,
) -> Batch:
    """Stage events that were set aside, as if they had arrived now: after an ALTER, or once a row that they need
    exists.

    Those that still have faults stay set aside: ``setAsideEvents`` counts them. A repeated ``Idempotency-Key`` has the
    same effect as in ``POST …/batches``.
    """
    sender = request.scope[GRANT].name
    retried = service.RetriedEvents(parts.database, name, ids or (), sender, idempotency_key)
    done = await with_retries(parts, idempotency_key, stage_retried, parts, retried)
    return await batch_answer(request, response, parts, done, prefer)
