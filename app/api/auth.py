"""Who may call: the gate in front of all routes (design §7, promise 6; docs/decisions/0012)."""

from __future__ import annotations

import anyio
from anyio.to_thread import run_sync
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.browsers import Place, check_host, check_page
from app.api.deps import Parts
from app.api.refusals import refuse
from app.core.errors import KeyfoldError
from app.services.tokens import TokenGate
from app.settings import Settings, is_loopback

# The only paths without a gate, byte for byte as the router sees them: decoded, nothing collapsed.
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/openapi.json", "/docs"})
METRICS_PATH = "/metrics"
_REFUSED_WEBSOCKET = 1008  # policy violation, RFC 6455


class Gate:
    """Refuses whoever may not call, before a byte of the body is read and before any route is looked for.

    With tokens a request needs one. Without, it must name this machine. Pages of other origins never pass. With
    ``open_metrics`` a caller on this machine that names it reads the metrics without a token.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.host = settings.host
        self.open_metrics = settings.open_metrics
        # Its own thread: requests that keep all others busy do not keep callers at the gate.
        self.turns = anyio.CapacityLimiter(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _REFUSED_WEBSOCKET})
            return
        try:
            if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
                await self._check(scope)
        except KeyfoldError as error:
            await refuse(scope, receive, send, error)
            return
        await self.app(scope, receive, send)

    async def _check(self, scope: Scope) -> None:
        """Raises ``Forbidden``, ``Unauthorized``, or ``Unavailable`` where the catalog does not say who may call."""
        headers = Headers(scope=scope)
        check_page(headers)
        parts: Parts = scope["app"].state.parts
        open_here = self.open_metrics and scope["path"] == METRICS_PATH and _is_local(scope)
        if open_here or not await self._has_token(parts.gate, headers.get("authorization")):
            check_host(headers, Place(self.host, (scope.get("server") or (None, None))[1]))

    async def _has_token(self, gate: TokenGate, authorization: str | None) -> bool:
        recalled = gate.recall(authorization)
        return await run_sync(gate.check, authorization, limiter=self.turns) if recalled is None else recalled


def _is_local(scope: Scope) -> bool:
    """Whether the connection comes from this machine; a proxy's does, too, but names another host."""
    client = scope.get("client")
    return client is not None and is_loopback(client[0])
