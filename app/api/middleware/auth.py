"""The gate in front of all routes: authentication (docs/decisions/0012)."""

from __future__ import annotations

import anyio
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.document.docs_page import PAGE_PATHS
from app.api.shared.deps import GRANT, Parts
from app.api.shared.refusals import refuse
from app.core.access import EVERYBODY, Grant, Role
from app.core.errors import KeyfoldError, Unauthorized
from app.http.browsers import Place, check_host, check_page
from app.http.callers import CREDENTIAL_PATHS, address_of, count_failure, count_request, granted
from app.services.access.sessions import check_no_session
from app.services.access.token_gate import TokenGate
from app.settings import Settings, is_loopback

# The only paths without a gate, byte for byte as the router sees them: decoded, nothing collapsed.
OPEN_PATHS = frozenset({"/healthz", "/healthz/", "/readyz", "/readyz/", "/openapi.json"}) | PAGE_PATHS
METRICS_PATH = "/metrics"
_REFUSED_WEBSOCKET = 1008  # policy violation, RFC 6455


class Gate:
    """Refuses callers without access, before the body is read and the request is routed.

    With tokens a request needs one. Without, it must name this machine. Pages of other origins never pass. Afterwards
    the scope has the caller's ``GRANT``, except on sign-in paths (``CREDENTIAL_PATHS``). With ``open_metrics`` a
    caller on this machine reads the metrics without a token. Requests to the console have passed its own gate before
    (``app.console.site.gate``), which has set the grant.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.host = settings.host
        self.origins = frozenset(settings.cors_origins)
        self.open_metrics = settings.open_metrics
        # Its own thread, so that callers are authenticated even if all other threads are busy.
        self.turns = anyio.CapacityLimiter(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _REFUSED_WEBSOCKET})
            return
        try:
            if scope["type"] == "http" and scope["path"] not in OPEN_PATHS and GRANT not in scope:
                await self._check(scope)
        except KeyfoldError as error:
            await refuse(scope, receive, send, error)
            return
        await self.app(scope, receive, send)

    async def _check(self, scope: Scope) -> None:
        """Raise ``Forbidden``, ``Unauthorized``, or ``Unavailable`` if the catalog does not answer."""
        headers = Headers(scope=scope)
        check_page(headers, scope["scheme"], self.origins)
        if scope["path"] in CREDENTIAL_PATHS:
            return
        parts: Parts = scope["app"].state.parts
        try:
            check_no_session(headers.get("authorization"))
            grant = await self._grant(parts.gate, scope, headers.get("authorization"))
        except Unauthorized as error:
            count_failure(parts.rates.failures, address_of(scope), error)
            raise
        if grant is EVERYBODY:
            check_host(headers, Place(self.host, (scope.get("server") or (None, None))[1]))
        else:
            count_request(parts.rates.requests, grant)
        scope[GRANT] = grant

    async def _grant(self, gate: TokenGate, scope: Scope, authorization: str | None) -> Grant:
        if self.open_metrics and scope["path"] == METRICS_PATH and _is_local(scope):
            return EVERYBODY
        return await granted(gate, authorization, self.turns)


def _is_local(scope: Scope) -> bool:
    """Return whether the connection comes from this machine; a proxy's connection may, too, but with another host
    name.
    """
    client = scope.get("client")
    return client is not None and is_loopback(client[0])


async def check_again(request: Request, database: str, table: str) -> None:
    """Raise ``Unauthorized`` or ``Forbidden`` if the reader of an endless answer has lost access to the table."""
    parts: Parts = request.app.state.parts
    grant = await granted(parts.gate, request.headers.get("authorization"))
    grant.check_table(Role.READ, database, table)
