"""A table's batches: contents, senders and states; withdrawn and retried."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

from starlette.responses import Response

from app.console.site.tabs import address_of_table
from app.console.site.visits import Page, Visit
from app.console.table_pages.table import PAGE_ITEMS, TABLE_PAGE, table_name, table_page
from app.core.access import Role
from app.core.errors import Conflict, KeyfoldError, NotFound
from app.core.table.history import SET_ASIDE, Batch, BatchState
from app.http.kinds import status_of
from app.services.batches.batches import list_batches, retry_batch, withdraw_batch
from app.services.shared.pages import PageRequest

BATCHES_PATH: Final = f"{TABLE_PAGE}/batches"
_FRAGMENT: Final = "parts/batches.html"
STATES: Final[Mapping[BatchState, tuple[str, str]]] = {
    BatchState.STAGED: ("staged", ""),
    BatchState.MERGED: ("merged", "good"),
    BatchState.DELETED: ("withdrawn", ""),
    BatchState.DAMAGED: ("damaged", "bad"),
    BatchState.POISONED: ("poisoned", "bad"),
}
"""What a state is called, and how it looks."""


def show_batches(visit: Visit) -> Response:
    """Show the batches of the table with their states, newest first."""
    return _page(visit, None)


def show_list(visit: Visit) -> Response:
    """Show the part that changes, which is polled."""
    return visit.fragment(_FRAGMENT, **_context(visit))


def withdraw(visit: Visit) -> Response:
    """Withdraw a batch that is in no merge."""

    def withdrawn(batch: str) -> Batch:
        return withdraw_batch(visit.parts.database, visit.parts.warehouse, table_name(visit), batch)

    return _change(visit, "deleteBatch", withdrawn)


def retry(visit: Visit) -> Response:
    """Stage a batch again that was set aside."""
    return _change(visit, "retryBatch", lambda batch: retry_batch(visit.parts.database, table_name(visit), batch))


def sent_batch(visit: Visit, table_id: str, batch_id: str) -> Batch | None:
    """Return the batch that a form became, for the page that follows; None for one that is gone."""
    if not batch_id:
        return None
    with visit.parts.database.reading() as repository:
        try:
            return repository.batches.get(table_id, batch_id)
        except NotFound:
            return None


def _change(visit: Visit, operation: str, changed: Callable[[str], Batch]) -> Response:
    """Change the batch that the form names, and show the list again; with the reason if that is not possible."""
    batch = visit.form.get("batch", "")
    try:
        changed(batch)
    except (Conflict, NotFound) as error:
        return _page(visit, error)
    database, table = table_name(visit)
    visit.note(operation, database=database, table=table, batch=batch)
    return visit.go(address_of_table(visit, "/batches") + _query(_wanted(visit)))


def _page(visit: Visit, error: KeyfoldError | None) -> Response:
    context = _context(visit)
    status = HTTPStatus.OK if error is None else status_of(error)
    return table_page(
        visit,
        "batches",
        status=status,
        error=error,
        states=STATES,
        digest=visit.digest(_FRAGMENT, **context),
        **context,
    )


def _wanted(visit: Visit) -> dict[str, str]:
    """Return the state and the page of the list: from the address, or from a form of the page."""
    query = {name: visit.form.get(name) or visit.param(name) for name in ("state", "after")}
    return query if query["state"] in STATES else {**query, "state": ""}


def _query(wanted: Mapping[str, str]) -> str:
    given = {name: text for name, text in wanted.items() if text}
    return f"?{urlencode(given)}" if given else ""


def _context(visit: Visit) -> dict[str, Any]:
    wanted = _wanted(visit)
    state = BatchState(wanted["state"]) if wanted["state"] else None
    with visit.parts.database.reading() as repository:
        table = repository.tables.get(*table_name(visit))
        page = list_batches(repository, table, PageRequest(PAGE_ITEMS, wanted["after"] or None), state)
    path = address_of_table(visit, "/batches")
    return {
        "base": address_of_table(visit),
        "path": path,
        "wanted": wanted,
        "items": [(batch, *STATES[batch.state]) for batch in page.items],
        "older": _query({**wanted, "after": page.next_token}) if page.next_token else None,
        "newest": _query({"state": wanted["state"]}),
        "set_aside": SET_ASIDE,
        "may_change": visit.may(Role.WRITE, *table_name(visit)),
        "merges": address_of_table(visit, "/merges"),
        "changes": address_of_table(visit, "/snapshots/changes"),
    }


PAGES: Final = (
    Page("GET", BATCHES_PATH, show_batches),
    Page("GET", f"{BATCHES_PATH}/list", show_list, whole=False),
    Page("POST", f"{BATCHES_PATH}/withdraw", withdraw, Role.WRITE),
    Page("POST", f"{BATCHES_PATH}/retry", retry, Role.WRITE),
)
