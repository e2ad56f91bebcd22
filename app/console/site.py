"""The pages of the console, and how they are put before the API."""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from urllib.parse import parse_qsl

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import Response

from app.console import (
    audit,
    batches,
    changelog,
    code,
    examples,
    files,
    home,
    merges,
    new_table,
    operations,
    playground,
    row,
    row_form,
    sign_in,
    snapshots,
    table,
    table_settings,
    tokens,
    upload,
)
from app.console.cookies import is_form_token, sent_cookie, set_cookie
from app.console.failures import failed
from app.console.gate import VISIT
from app.console.visits import Page, Visit
from app.core.errors import Forbidden, Invalid
from app.http.parts import in_writers_thread
from app.http.uploads import ROOM, SPOOLED
from app.services.sent_files import read_form

_OF_TABLE: Final = (table, batches, merges, snapshots, changelog, files, table_settings, code, row, row_form, upload)
_MODULES: Final = (home, examples, new_table, *_OF_TABLE, playground, operations, tokens, audit, sign_in)
PAGES: Final[tuple[Page, ...]] = tuple(page for module in _MODULES for page in module.PAGES)
MOST_FORM_BYTES: Final = 2**20  # where a form with a file was expected
MOST_FIELDS: Final = 10_000  # of a form: a table of 200 columns has some for each


def install_console(app: FastAPI) -> None:
    """Makes ``app`` answer the pages; ``app.console.gate`` stands before them and finds the one that is asked for."""
    for path in ("/", "/console/{rest:path}"):
        app.add_route(path, _answer, methods=["GET", "POST"], include_in_schema=False)


async def _answer(request: Request) -> Response:
    visit: Visit
    page: Page
    visit, page = request.scope[VISIT]
    response: Response
    try:
        if page.method == "GET":
            response = await run_in_threadpool(page.shows, visit)
        else:
            visit = await _sent(request, visit)
            _check_form(visit)
            response = await in_writers_thread(visit.parts, page.shows, visit)
    except Exception as error:  # every failure is a page; what nobody foresaw goes to the log
        response = await run_in_threadpool(failed, visit, error)
    if sent_cookie(request) is None and "set-cookie" not in response.headers:
        set_cookie(request, response, visit.cookie)
    return response


async def _sent(request: Request, visit: Visit) -> Visit:
    """The visit with the form that came. Raises ``Invalid`` and ``Unavailable``."""
    spooled, told = request.scope.get(SPOOLED), request.headers.get("content-type", "")
    if spooled is None or not told.lower().startswith("multipart/form-data"):
        body = await request.body() if spooled is None else bytes(spooled[:MOST_FORM_BYTES])
        return replace(visit, form=_form(body))
    sent = await in_writers_thread(visit.parts, read_form, spooled, told, request.scope[ROOM])
    return replace(visit, form=ImmutableMultiDict(sent.fields), file=sent.file)


def _form(body: bytes) -> ImmutableMultiDict[str, str]:
    """The fields of a form. Raises ``Invalid``."""
    try:
        return ImmutableMultiDict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError as error:
        raise Invalid("the form cannot be read; go back and send it again") from error


def _check_form(visit: Visit) -> None:
    """Raises ``Forbidden`` for a form that no page shown to this browser has sent."""
    if not is_form_token(visit.cookie, visit.form.get("csrf", "")):
        raise Forbidden("this form is out of date, for you signed in or out since it was shown: open the page again")
