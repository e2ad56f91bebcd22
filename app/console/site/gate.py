"""The gate of the pages, in front of the API's: it finds the visitor and the page before the body is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import quote

import anyio
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from app.console.site.assets import ASSETS_PATH, answer_asset
from app.console.site.cookies import new_visitor, sent_cookie, session_of
from app.console.site.failures import failure_page, show_failure
from app.console.site.nearest import nearest_page_step
from app.console.site.visits import NOUNS, Page, Visit, check_names
from app.core.access import EVERYBODY, Grant, Role, TokenScope
from app.core.errors import Forbidden, Invalid, KeyfoldError, NotFound, TooLarge, Unauthorized
from app.http.browsers import Place, check_host, check_page
from app.http.callers import address_of, count_failure, count_request, granted
from app.http.parts import GRANT, Parts
from app.http.unread import answer_unread
from app.settings import Settings

VISIT: Final = "keyfold.visit"  # the member of the scope that has the ``Visit`` and the ``Page`` of a request
SIGN_IN_PATH: Final = "/console/sign-in"
SIGNED_OUT: Final = Grant("", Role.READ, TokenScope())
"""What anyone who has not signed in may do: read nothing."""
_METHODS: Final = ("GET", "HEAD", "POST")
_OLD_HOME: Final = "/console"  # where people look for the console, too


def is_page(path: str) -> bool:
    """Return whether a path is the console's."""
    return path in ("/", _OLD_HOME) or path.startswith(f"{_OLD_HOME}/")


class ConsoleGate:
    """Admits people who signed in, or everybody on this machine until the first token is made.

    A page of another origin can make a browser send nothing here but a visit to a page that it links to, without the
    cookie: pages only change something by a POST, which must come from a page of this service.
    """

    def __init__(self, app: ASGIApp, settings: Settings, pages: Iterable[Page]) -> None:
        self.app = app
        self.host = settings.host
        self.most_bytes = settings.max_body_bytes
        self.pages = [(compile_path(page.path)[0], page) for page in pages]
        self.turns = anyio.CapacityLimiter(1)  # as the API's gate has its own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or not is_page(scope["path"]):
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        response = _elsewhere(request) or self._asset(scope)
        if response is None:
            response = await self._let_in(request)
        if response is None:
            await self.app(scope, receive, send)
        else:
            await answer_unread(scope, receive, send, response)

    def _asset(self, scope: Scope) -> Response | None:
        if not scope["path"].startswith(ASSETS_PATH) or scope["method"] not in ("GET", "HEAD"):
            return None
        return answer_asset(scope["path"].removeprefix(ASSETS_PATH), scope["query_string"].decode("latin-1"))

    async def _let_in(self, request: Request) -> Response | None:
        """Return None if the request may go on: its scope then has the grant, the visit and the page."""
        cookie = sent_cookie(request)
        visit = Visit(request, SIGNED_OUT, cookie or new_visitor())
        try:
            _check_sender(request)
            match = self._find(request)
            if match is None:
                near = nearest_page_step(request.scope["path"], (page for _, page in self.pages))
                return failure_page(visit, NotFound("there is no such page here"), near)
            page, names = match
            _check_length(request, self.most_bytes)
            grant = await self._grant(request, page, session_of(cookie))
        except Unauthorized:
            return _once_more(visit) if cookie is None and _from_elsewhere(request) else _to_sign_in(visit)
        except KeyfoldError as error:
            return failure_page(visit, error)
        request.scope[GRANT] = grant
        visit = replace(visit, grant=grant, names=names)
        if page.role is not None:
            try:
                check_names(grant, page.role, *(names[noun] for noun in NOUNS if noun in names))
            except Forbidden as error:
                return failure_page(visit, error)
        request.scope[VISIT] = visit, page
        return None

    def _find(self, request: Request) -> tuple[Page, Mapping[str, str]] | None:
        """Return the page and the names in its path; None if there is no such page."""
        method = "GET" if request.method == "HEAD" else request.method
        for pattern, page in self.pages:
            match = pattern.match(request.scope["path"])
            if match is not None and page.method == method:
                return page, match.groupdict()
        return None

    async def _grant(self, request: Request, page: Page, session: str | None) -> Grant:
        """Return the visitor's grant. Raise ``Unauthorized``, ``Forbidden``, ``TooMany`` or ``Unavailable``."""
        parts: Parts = request.app.state.parts
        try:
            grant = await granted(parts.gate, None if session is None else f"Bearer {session}", self.turns)
        except Unauthorized as error:
            if page.role is None:
                return SIGNED_OUT
            if session is not None:  # anyone who sends none only asks for the page, and is shown where to sign in
                count_failure(parts.rates.failures, address_of(request.scope), error)
            raise
        if grant is EVERYBODY:
            check_host(request.headers, Place(self.host, (request.scope.get("server") or (None, None))[1]))
        else:
            count_request(parts.rates.requests, grant)
        return grant


def _elsewhere(request: Request) -> Response | None:
    """Return the answer to what is no request for a page; None for one that is."""
    if request.method not in _METHODS:
        error = Invalid("a page takes GET or POST; programs call the API below /v1")
        visit = Visit(request, SIGNED_OUT, new_visitor())
        response = show_failure(visit, 405, "Not this way", error)
        response.headers["Allow"] = ", ".join(_METHODS)
        return response
    if request.scope["path"].rstrip("/") == _OLD_HOME and request.method != "POST":
        return RedirectResponse("/", 308)
    return None


def _check_sender(request: Request) -> None:
    """Raise ``Forbidden`` for a request that a page of another origin made the browser send, except a visit that
    changes nothing; and for a change without ``Origin``.
    """
    if request.method in ("GET", "HEAD") and _is_visit(request):
        return
    check_page(request.headers, request.scope["scheme"])
    if request.method not in ("GET", "HEAD") and "origin" not in request.headers:
        raise Forbidden("the request does not say which page it comes from (Origin); a program calls the API instead")


def _check_length(request: Request, most: int) -> None:
    """Raise ``TooLarge`` for a file whose announced length exceeds the bound of a body. A page says so."""
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > most):
        raise TooLarge(f"the file is larger than {most} bytes (KEYFOLD_MAX_BODY_BYTES); split it")


def _is_visit(request: Request) -> bool:
    """Return whether the browser shows the answer to a person, as a whole page
    (https://www.w3.org/TR/fetch-metadata).
    """
    headers = request.headers
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest", "document") == "document"


def _from_elsewhere(request: Request) -> bool:
    return request.method == "GET" and request.headers.get("sec-fetch-site") in ("cross-site", "same-site")


def _once_more(visit: Visit) -> Response:
    """Answer a page that requests itself again: a link of another site comes without the cookie, the second request has
    it.
    """
    return visit.page("parts/once_more.html", path=_own_path(visit.request))


def _to_sign_in(visit: Visit) -> Response:
    if visit.has_script:  # a part of a page: the whole of it has to go there
        return Response(status_code=204, headers={"HX-Redirect": SIGN_IN_PATH, "Cache-Control": "no-store"})
    if visit.request.method != "GET":
        return visit.go(SIGN_IN_PATH)
    return visit.go(f"{SIGN_IN_PATH}?next={quote(_own_path(visit.request), safe='')}")


def _own_path(request: Request) -> str:
    query = request.url.query
    return quote(request.scope["path"], safe="/") + (f"?{query}" if query else "")
