"""The gate in front of all routes (docs/decisions/0012)."""

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
    """Refuses anyone who may not call, before a byte of the body is read and before any route is looked for.

    With tokens a request needs one. Without, it must name this machine. Pages of other origins never pass. What the
    caller may do is in the scope as ``GRANT`` from then on, but where it signs in (``CREDENTIAL_PATHS``). With
    ``open_metrics`` a caller on this machine that names it reads the metrics without a token. The console
    has another gate before this one (``app.console.site.gate``), which has said what the caller may do.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.host = settings.host
        self.origins = frozenset(settings.cors_origins)
        self.open_metrics = settings.open_metrics
        # Its own thread: requests that keep all others busy do not keep callers at the gate.
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
        """Raise ``Forbidden``, ``Unauthorized``, or ``Unavailable`` if the catalog does not say who may call."""
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
    """Return whether the connection comes from this machine; a proxy's does, too, but names another host."""
    client = scope.get("client")
    return client is not None and is_loopback(client[0])


async def check_again(request: Request, database: str, table: str) -> None:
    """Raise ``Unauthorized`` or ``Forbidden`` once the reader of an endless answer may not read the table any more."""
    parts: Parts = request.app.state.parts
    grant = await granted(parts.gate, request.headers.get("authorization"))
    grant.check_table(Role.READ, database, table)
