"""Failures as pages: what is wrong, each fault with its fix, and where to go on."""

from __future__ import annotations

import logging
import math
import uuid
from typing import Final

from starlette.responses import Response

from app.console.parts.trails import Step
from app.console.site.nearest import nearest_step
from app.console.site.visits import NOUNS, Visit
from app.core.errors import Conflict, ErrorCode, Forbidden, KeyfoldError, NotFound, Resource, TooMany, Unavailable
from app.core.table.upkeep.damage import DamagedFile
from app.http.kinds import status_of
from app.http.members import REFUSAL
from app.services.shared.damage import failure_of

log = logging.getLogger(__name__)
_TITLES: Final = {
    NotFound: "Not found",
    Forbidden: "You may not do this",
    Conflict: "Something else came first",
    TooMany: "Too many requests",
    Unavailable: "Not now",
}
# How many of the names in the path are those of something that is there, by what is not; all, where that has no entry.
_NAMED: Final = {Resource.DATABASE.value: 0, Resource.TABLE.value: 1}


def failure_page(visit: Visit, error: KeyfoldError, near: Step | None = None) -> Response:
    """Return the page that reports ``error``; ``near`` is the page that was meant, if one is known."""
    status = status_of(error)
    if status == 500:
        return unforeseen_page(visit, error)
    visit.request.scope[REFUSAL] = error.with_traceback(None)
    title = next((title for kind, title in _TITLES.items() if isinstance(error, kind)), "This does not work")
    response = show_failure(visit, status, title, error, near)
    if error.retry_seconds is not None:
        response.headers["Retry-After"] = str(max(1, math.ceil(error.retry_seconds)))
    return response


def show_failure(visit: Visit, status: int, title: str, error: KeyfoldError, near: Step | None = None) -> Response:
    """Return a page with the error and a link to continue."""
    names = [visit.names[noun] for noun in NOUNS if noun in visit.names]
    missing = error.resource_type if isinstance(error, NotFound) else None
    named = [] if isinstance(error, Forbidden) else names[: _NAMED.get(missing or "", len(names))]
    near = near or nearest_step(visit, error)
    return visit.page("parts/failure.html", status, title=title, error=error, named=named, near=near)


def failed(visit: Visit, error: Exception) -> Response:
    """Return the page for an error that another page raised."""
    if isinstance(error, DamagedFile):
        error = failure_of(visit.parts.database, error)
    return failure_page(visit, error) if isinstance(error, KeyfoldError) else unforeseen_page(visit, error)


def unforeseen_page(visit: Visit, error: Exception) -> Response:
    """Return a page for an unexpected error, which shows only the id under which the log has the
    error, as in the API.
    """
    number = uuid.uuid4()
    log.error("%s %s failed, id %s", visit.request.method, visit.request.url.path, number, exc_info=error)
    if isinstance(error, OSError):
        hidden: KeyfoldError = Unavailable("a file of the service cannot be read or written now; retry later")
        return show_failure(visit, 503, "Not now", hidden)
    message = f"an error inside the service; its log has it under the id {number}"
    shown = KeyfoldError(message, code=ErrorCode.INTERNAL)
    return show_failure(visit, 500, "Something broke", shown)
