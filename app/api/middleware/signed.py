"""Requests with a signature in place of a token (``app.services.access.webhooks``)."""

from __future__ import annotations

import time
from typing import Final

import anyio
from anyio.to_thread import run_sync
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.middleware.auth import OPEN_PATHS
from app.api.middleware.limits import Pace, next_part, replayed, too_large
from app.api.shared.deps import GRANT, Parts
from app.api.shared.refusals import refuse
from app.core.errors import KeyfoldError, Unauthorized
from app.http.browsers import check_page
from app.http.callers import address_of, count_failure, count_request
from app.http.unread import Incoming
from app.services.access.webhooks import Signed
from app.settings import Settings

SIGNED_ID: Final = "keyfold.signed"  # the member of the scope that has the id of a signed request
MOST_SIGNED_BYTES: Final = 2**24
# At most this many bodies are in memory before their sender is authenticated.
_AT_ONCE: Final = 8


class _Gone(Exception):
    """The client disconnected before its whole body was read."""


class SignedRequests:
    """Reads the body of a signed request, checks the signature, and sets the signer's grant in the scope. If no token
    is needed, or one is sent, the signature is ignored.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.origins = frozenset(settings.cors_origins)
        self.pace = Pace(settings.silence_seconds, settings.body_bytes_per_second)
        self.most = min(MOST_SIGNED_BYTES, settings.max_body_bytes)
        self.turns = anyio.Semaphore(_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        signed = None
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS and GRANT not in scope:
            headers = Headers(scope=scope)
            signed = None if "authorization" in headers else Signed.from_headers(headers)
        if signed is None:
            await self.app(scope, receive, send)
            return
        receive = Incoming(receive)
        try:
            body = await self._let_in(scope, receive, signed)
        except _Gone:
            return
        except KeyfoldError as error:
            await refuse(scope, receive, send, error)
            return
        if body is not None:
            receive = replayed(body, receive)
        await self.app(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, signed: Signed) -> bytes | None:
        """Return the body of a request with a valid signature; None if the service needs no token."""
        check_page(Headers(scope=scope), scope["scheme"], self.origins)
        parts: Parts = scope["app"].state.parts
        if await run_sync(parts.gate.is_open):
            return None
        try:
            signed.check(time.time())
            async with self.turns:
                body = await self._whole(receive)
                grant = await run_sync(parts.gate.check_signed, signed, body)
        except Unauthorized as error:
            count_failure(parts.rates.failures, address_of(scope), error)
            raise
        count_request(parts.rates.requests, grant)
        scope[GRANT], scope[SIGNED_ID] = grant, signed.id
        return body

    async def _whole(self, receive: Receive) -> bytes:
        """Return the body. Raise ``TooLarge``, ``TooSlow``, and ``_Gone`` if the client disconnected before its end."""
        body, began = bytearray(), time.monotonic()
        message: Message = {"type": "http.request", "more_body": True}
        while message.get("more_body", False):
            message = await next_part(receive, self.pace.wait_seconds(len(body), time.monotonic() - began), len(body))
            if message["type"] == "http.disconnect":
                raise _Gone
            body += message.get("body", b"")
            if len(body) > self.most:
                raise too_large(self.most)
        return bytes(body)
