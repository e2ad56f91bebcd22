"""The largest body of every kind of route, read before the route is called."""

from __future__ import annotations

import re
import time
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.to_thread import run_sync
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.middleware.auth import OPEN_PATHS
from app.api.shared.paths import CATALOG_PATH, TABLE_PATH, TABLES_BATCHES_PATH
from app.api.shared.refusals import refuse
from app.core.errors import FaultCode, KeyfoldError, TooLarge, TooSlow, Violation
from app.http.callers import CREDENTIAL_PATHS
from app.http.digests import ContentDigest
from app.http.unread import Incoming, has_body
from app.http.uploads import ROOM, ROW_FORM_PATHS, SIGN_PATHS, SPOOLED, UPLOAD_FORM_PATH
from app.settings import Settings
from app.storage.staging.spool import Content, Room, Spool

MOST_BYTES: Final = 2**20
# 1.6 KB for each of the records that a simulation may have.
MOST_SIMULATED_BYTES: Final = 16 * 2**20
# Largest body of callers without a token, who must not fill the room of bodies.
MOST_SIGN_IN_BYTES: Final = 2**12
# Largest form of one row: a value of 1 MB takes three times as much in a form.
MOST_FORM_BYTES: Final = 16 * 2**20


class BodyLimits:
    """The largest bodies in bytes: none on the open paths, 4 KiB in a sign-in, ``max_body_bytes`` in a batch or a file
    of the console, 16 MiB in a simulation or the form of a row, 1 MiB elsewhere; ``max_body_bytes`` bounds them all.
    """

    def __init__(self, settings: Settings) -> None:
        self._most = settings.max_body_bytes
        self._spooled = [_pattern(path) for path in (f"{TABLE_PATH}/batches", TABLES_BATCHES_PATH, UPLOAD_FORM_PATH)]
        self._larger = [
            *((pattern, self._most) for pattern in self._spooled),
            *((_pattern(path), MOST_FORM_BYTES) for path in ROW_FORM_PATHS),
            (_pattern(f"{TABLE_PATH}/rows:simulate"), MOST_SIMULATED_BYTES),
            (_pattern(f"{CATALOG_PATH}/merges:simulate"), MOST_SIMULATED_BYTES),
        ]

    def most_bytes(self, method: str, path: str) -> int:
        """Return the bound in bytes for a request with ``method`` to the decoded ``path``."""
        if path in OPEN_PATHS:
            return 0
        if path in SIGN_PATHS or path in CREDENTIAL_PATHS:
            return MOST_SIGN_IN_BYTES
        larger = (most for pattern, most in self._larger if method == "POST" and pattern.match(path.removesuffix("/")))
        return min(self._most, next(larger, MOST_BYTES))

    def spooled(self, method: str, path: str) -> bool:
        """Return whether the route reads the body from ``SPOOLED``, which moves a large body to a file."""
        return method == "POST" and any(pattern.match(path.removesuffix("/")) for pattern in self._spooled)


def _pattern(template: str) -> re.Pattern[str]:
    """Return the regular expression of a path, as the router compiles it."""
    return compile_path(template)[0]


class BodyLimit:
    """Reads bodies up to the bound of their route, and refuses larger ones before they fill the memory, and slow ones.

    Routes get the whole body, so that no slow sender holds a thread or a transaction; that of a batch is in the scope
    as ``SPOOLED``.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.pace = Pace(settings.silence_seconds, settings.body_bytes_per_second)
        self.limits = BodyLimits(settings)
        folder = settings.folder.resolve() / "uploads"
        self.room = Room(folder, settings.bodies_mib * 2**20, settings.uploads_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope[ROOM] = self.room
        headers = Headers(scope=scope)
        if scope["method"] == "GET" and not has_body(headers) and "content-digest" not in headers:
            await self.app(scope, receive, send)  # reading an empty body took a tenth of a small answer's time
            return
        spooled = self.limits.spooled(scope["method"], scope["path"])
        with closing(Spool(self.room, files=spooled)) as spool:
            content = await self._body(scope, Incoming(receive), send, spool)
            if content is None:
                return
            if spooled:
                scope[SPOOLED] = content
            await self.app(scope, replayed(b"" if spooled else bytes(content), receive), send)

    async def _body(self, scope: Scope, receive: Receive, send: Send, spool: Spool) -> Content | None:
        """Return the body; None if it was refused, or if the client disconnected before its end."""
        most, headers = self.limits.most_bytes(scope["method"], scope["path"]), Request(scope).headers
        try:
            _check_declared(headers.get("content-length", ""), most)
            digest = ContentDigest.from_headers(headers)
            return spool.content() if await _read(receive, most, self.pace, spool, digest) else None
        except KeyfoldError as error:
            spool.close()
            await refuse(scope, receive, send, error)
            return None


@dataclass(frozen=True)
class Pace:
    """The slowest allowed body: it may pause for ``silence_seconds``; after that time it must have averaged
    ``bytes_per_second``.
    """

    silence_seconds: float
    bytes_per_second: int

    def wait_seconds(self, size: int, passed: float) -> float:
        """Return how long to wait for the next part of a body after ``size`` bytes in ``passed`` seconds."""
        if not self.bytes_per_second:
            return self.silence_seconds
        return min(self.silence_seconds, self.silence_seconds + size / self.bytes_per_second - passed)


def _check_declared(length: str, most: int) -> None:
    if length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > most):
        raise too_large(most)


async def _read(receive: Receive, most: int, pace: Pace, spool: Spool, digest: ContentDigest | None) -> bool:
    """Fill ``spool`` with the body; return false if the client disconnected before its end. Raise ``TooLarge``,
    ``TooSlow``, ``Unavailable`` if there is no room for it, ``Invalid`` if its digest differs from ``digest``.
    """
    more, began = True, time.monotonic()
    while more:
        message = await next_part(receive, pace.wait_seconds(spool.size, time.monotonic() - began), spool.size)
        if message["type"] == "http.disconnect":
            return False
        spool.add(message.get("body", b""))
        if digest is not None:
            digest.add(message.get("body", b""))
        more = message.get("more_body", False)
        if spool.size > most:
            raise too_large(most)
        if spool.due:
            await run_sync(spool.spill)
    if digest is not None:
        digest.check()
    return True


async def next_part(receive: Receive, seconds: float, size: int) -> Message:
    """Return the next part of a body with ``size`` bytes so far. Raise ``TooSlow`` after ``seconds`` without one."""
    try:
        with anyio.fail_after(max(0.0, seconds)):
            return await receive()
    except TimeoutError as error:
        message = f"the body comes too slowly: {size} bytes so far; nothing was stored"
        fault = Violation(
            "", FaultCode.TOO_SLOW, message, "send the request again, its body faster and without a pause"
        )
        raise TooSlow(message, violations=[fault]) from error


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that yields ``body``, and then the client's disconnect."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return messages.pop() if messages else await receive()

    return replayed


def too_large(most: int) -> TooLarge:
    """Return the error of a body that is larger than ``most`` bytes."""
    if most == 0:
        message, fix = "this route takes no body", "send the request without one"
    else:
        message, fix = f"the body is larger than {most} bytes; split the request", "split the request"
    return TooLarge(message, violations=[Violation("", FaultCode.TOO_LARGE, message, fix)])
