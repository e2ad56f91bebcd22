"""A table's change events that are set aside: the error of each, and actions to retry or withdraw it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode

from starlette.responses import Response

from app.console.site.tabs import address_of_table
from app.console.site.visits import Page, Visit
from app.console.table_pages.batches import sent_batch
from app.console.table_pages.table import PAGE_ITEMS, TABLE_PAGE, table_name, table_page
from app.core.access import Role
from app.core.errors import KeyfoldError, NotFound
from app.http.kinds import status_of
from app.http.uploads import stage_retried
from app.services.batches.set_aside_events import RetriedEvents, list_events, withdraw_event
from app.services.shared.pages import PageRequest

EVENTS_PATH: Final = f"{TABLE_PAGE}/set-aside-events"


def show_events(visit: Visit) -> Response:
    """Show the events, the oldest first."""
    return _page(visit, None)


def retry(visit: Visit) -> Response:
    """Stage the event that the form names, or else the first thousand; those that still have faults stay."""
    database, name = table_name(visit)
    event = visit.form.get("event", "")
    try:
        retried = RetriedEvents(visit.parts.database, (database, name), [event] if event else [], visit.grant.name)
        done = stage_retried(visit.parts, retried)
    except KeyfoldError as error:
        if status_of(error) >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise
        return _page(visit, error)
    visit.note("retrySetAsideEvents", database=database, table=name, batch=done.batch.id)
    return visit.go(f"{address_of_table(visit, '/set-aside-events')}?{urlencode({'sent': done.batch.id})}")


def withdraw(visit: Visit) -> Response:
    """Withdraw an event that is set aside."""
    database, name = table_name(visit)
    event = visit.form.get("event", "")
    try:
        with visit.parts.database.transaction() as repository:
            withdraw_event(repository, repository.tables.get(database, name), event)
    except NotFound as error:
        return _page(visit, error)
    visit.note("withdrawSetAsideEvent", database=database, table=name, event=event)
    return visit.go(address_of_table(visit, "/set-aside-events"))


def _page(visit: Visit, error: KeyfoldError | None) -> Response:
    after = visit.param("after") or None
    with visit.parts.database.reading() as repository:
        table = repository.tables.get(*table_name(visit))
        page = list_events(repository, table, PageRequest(PAGE_ITEMS, after))
        count = repository.set_aside_events.count(table.id)
    return table_page(
        visit,
        "set_aside_events",
        status=HTTPStatus.OK if error is None else status_of(error),
        error=error,
        path=address_of_table(visit, "/set-aside-events"),
        items=page.items,
        count=count,
        after=after,
        later=f"?{urlencode({'after': page.next_token})}" if page.next_token else None,
        sent=sent_batch(visit, table.id, visit.param("sent")),
        may_change=visit.may(Role.WRITE, *table_name(visit)),
    )


PAGES: Final = (
    Page("GET", EVENTS_PATH, show_events),
    Page("POST", f"{EVENTS_PATH}/retry", retry, Role.WRITE),
    Page("POST", f"{EVENTS_PATH}/withdraw", withdraw, Role.WRITE),
)
