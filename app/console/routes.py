"""The pages of the console, and their installation before the API."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final
from urllib.parse import parse_qsl

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import FastAPI
from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import Response

from app.console.pages import (
    audit,
    examples,
    home,
    new_table,
    operations,
    playground,
    provided_sign_in,
    reference,
    search,
    sign_in,
    tokens,
)
from app.console.site.cookies import is_form_token, sent_cookie, set_cookie
from app.console.site.failures import failed
from app.console.site.gate import VISIT
from app.console.site.visits import Page, Visit
from app.console.table_pages import (
    batches,
    changelog,
    code,
    files,
    merges,
    row,
    row_form,
    rows,
    set_aside_events,
    snapshots,
    table,
    table_settings,
    upload,
)
from app.core.errors import Forbidden, Invalid
from app.http.parts import in_writers_thread
from app.http.uploads import ROOM, SPOOLED
from app.services.bodies.sent_files import read_form

_OF_TABLE: Final = (
    *(table, rows, batches, set_aside_events, merges, snapshots, changelog),
    *(files, table_settings, code, row, row_form, upload),
)
_MODULES: Final = (
    home,
    search,
    reference,
    examples,
    new_table,
    *_OF_TABLE,
    playground,
    operations,
    tokens,
    audit,
    sign_in,
    provided_sign_in,
)
PAGES: Final[tuple[Page, ...]] = tuple(page for module in _MODULES for page in module.PAGES)
# A page that expects a file reads at most this much of a form that has none.
MOST_FORM_BYTES: Final = 2**20
# Reading pages at a time, and as many changing ones. Others wait, so that they do not delay the API.
PAGES_AT_ONCE: Final = 4
# Most fields of a form: a table of 200 columns has some for each.
MOST_FIELDS: Final = 10_000


class _Site:
    """Answers the pages, a few at a time, in separate threads from lookups and batches."""

    def __init__(self) -> None:
        self.readers = CapacityLimiter(PAGES_AT_ONCE)
        self.writers = CapacityLimiter(PAGES_AT_ONCE)

    async def answer(self, request: Request) -> Response:
        """Return the answer to one request that ``app.console.site.gate`` let in."""
        visit: Visit
        page: Page
        visit, page = request.scope[VISIT]
        try:
            response = await self._shown(request, visit, page)
        except Exception as error:  # every failure is a page; unexpected errors goes to the log
            response = await run_sync(failed, visit, error, limiter=self.readers)
        if sent_cookie(request) is None and "set-cookie" not in response.headers:
            set_cookie(request, response, visit.cookie)
        return response

    async def _shown(self, request: Request, visit: Visit, page: Page) -> Response:
        if page.method == "GET":
            return await run_sync(page.shows, visit, limiter=self.readers)
        work = partial(_sent, page, visit, b"" if SPOOLED in request.scope else await request.body())
        if page.reads:
            return await run_sync(work, limiter=self.readers)
        async with self.writers:
            return await in_writers_thread(visit.parts, work)


def install_console(app: FastAPI) -> None:
    """Make ``app`` answer the pages. ``site.gate`` runs before them and finds the page of a request."""
    site = _Site()
    for path in ("/", "/console/{rest:path}"):
        app.add_route(path, site.answer, methods=["GET", "POST"], include_in_schema=False)


def _sent(page: Page, visit: Visit, body: bytes) -> Response:
    """Return the answer to a form, which is ``body`` or what was spooled.

    Raise ``Forbidden`` for one that no page shown to this browser has sent, ``Invalid``, ``Unavailable``, and what the
    page raises.
    """
    spooled, media_type = visit.request.scope.get(SPOOLED), visit.request.headers.get("content-type", "")
    if spooled is not None and media_type.lower().startswith("multipart/form-data"):
        sent = read_form(spooled, media_type, visit.request.scope[ROOM])
        visit = replace(visit, form=ImmutableMultiDict(sent.fields), file=sent.file)
    else:
        visit = replace(visit, form=_form(body if spooled is None else bytes(spooled[:MOST_FORM_BYTES])))
    _check_form(visit)
    return page.shows(visit)


def _form(body: bytes) -> ImmutableMultiDict[str, str]:
    """Return the fields of a form. Raise ``Invalid``."""
    try:
        return ImmutableMultiDict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError as error:
        raise Invalid("the form cannot be read; go back and send it again") from error


def _check_form(visit: Visit) -> None:
    """Raise ``Forbidden`` for a form that no page shown to this browser has sent."""
    if not is_form_token(visit.cookie, visit.form.get("csrf", "")):
        raise Forbidden("this form is out of date, for you signed in or out since it was shown: open the page again")
