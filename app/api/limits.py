"""The largest body of every kind of route, read before the route is called."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

import anyio
from anyio.to_thread import run_sync
from fastapi import Depends
from starlette.requests import Request
from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.auth import OPEN_PATHS
from app.api.paths import CATALOG_PATH, TABLE_PATH
from app.api.refusals import refuse
from app.core.errors import FaultCode, KeyfoldError, TooLarge, TooSlow, Violation
from app.settings import Settings
from app.storage.spool import Content, Spool

MOST_BYTES: Final = 2**20
# 1.6 KB for each of the records that a simulation may have.
MOST_SIMULATED_BYTES: Final = 16 * 2**20
SILENCE_SECONDS: Final = 60.0
SPOOLED: Final = "keyfold.body"  # the member of the scope that has the body of a batch


def uploads_folder(settings: Settings) -> Path:
    """Where bodies are that are too large for the memory, while they are read."""
    return settings.folder.resolve() / "uploads"


async def _spooled(request: Request) -> Content:
    content: Content = request.scope[SPOOLED]
    return content


SpooledBody = Annotated[Content, Depends(_spooled)]


class BodyLimits:
    """How many bytes the body of a request may have: none on the open paths, ``max_body_bytes`` in a batch, 16 MiB in a
    simulation, 1 MiB elsewhere; ``max_body_bytes`` bounds them all.
    """

    def __init__(self, settings: Settings) -> None:
        self._most = settings.max_body_bytes
        self._spooled = _pattern(f"{TABLE_PATH}/batches")
        self._larger = [
            (_pattern(f"{TABLE_PATH}/batches"), self._most),
            (_pattern(f"{TABLE_PATH}/rows:simulate"), MOST_SIMULATED_BYTES),
            (_pattern(f"{CATALOG_PATH}/merges:simulate"), MOST_SIMULATED_BYTES),
        ]

    def of(self, method: str, path: str) -> int:
        """The bound in bytes for a request with ``method`` to the decoded ``path``."""
        if path in OPEN_PATHS:
            return 0
        larger = (most for pattern, most in self._larger if method == "POST" and pattern.match(path.removesuffix("/")))
        return min(self._most, next(larger, MOST_BYTES))

    def spooled(self, method: str, path: str) -> bool:
        """Whether the route reads the body from ``SPOOLED``: what is too large for the memory is a file."""
        return method == "POST" and self._spooled.match(path.removesuffix("/")) is not None


def _pattern(template: str) -> re.Pattern[str]:
    """As the router matches paths."""
    return compile_path(template)[0]


class BodyLimit:
    """Reads bodies up to the bound of their route, and refuses what is larger before it fills the memory.

    The routes behind it have the whole body, so that no slow sender holds a thread or a transaction; that of a batch is
    in the scope as ``SPOOLED``. A sender may be silent for ``silence_seconds``.
    """

    def __init__(self, app: ASGIApp, settings: Settings, silence_seconds: float = SILENCE_SECONDS) -> None:
        self.app = app
        self.silence_seconds = silence_seconds
        self.limits = BodyLimits(settings)
        self.folder = uploads_folder(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most = self.limits.of(scope["method"], scope["path"])
        try:
            _check_declared(Request(scope).headers.get("content-length", ""), most)
            spooled = self.limits.spooled(scope["method"], scope["path"])
            spool = Spool(self.folder) if spooled else Spool(memory_bytes=most)
            whole = await _read(receive, most, self.silence_seconds, spool)
        except KeyfoldError as error:
            await refuse(scope, receive, send, error)
            return
        if not whole:
            return
        content = spool.content()
        if spooled:
            scope[SPOOLED] = content
        await self.app(scope, _replayed(b"" if spooled else bytes(content), receive), send)


def _check_declared(length: str, most: int) -> None:
    if length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > most):
        raise _too_large(most)


async def _read(receive: Receive, most: int, silence_seconds: float, spool: Spool) -> bool:
    """Fill ``spool`` with the body; false if the client went before its end. Raises ``TooLarge``, ``TooSlow``, and
    ``Unavailable`` when there is no room for it.
    """
    more = True
    while more:
        message = await _next(receive, silence_seconds)
        if message["type"] == "http.disconnect":
            return False
        spool.add(message.get("body", b""))
        more = message.get("more_body", False)
        if spool.size > most:
            raise _too_large(most)
        if spool.due:
            await run_sync(spool.spill)
    return True


async def _next(receive: Receive, silence_seconds: float) -> Message:
    try:
        with anyio.fail_after(silence_seconds):
            return await receive()
    except TimeoutError as error:
        message = f"nothing came of the body for {silence_seconds:g} seconds; nothing was stored"
        fault = Violation("", FaultCode.TOO_SLOW, message, "send the request again, its body without a pause")
        raise TooSlow(message, violations=[fault]) from error


def _replayed(body: bytes, receive: Receive) -> Receive:
    """``receive`` that gives ``body``, and then what comes after it: that the client went."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return messages.pop() if messages else await receive()

    return replayed


def _too_large(most: int) -> TooLarge:
    if most == 0:
        message, fix = "this route takes no body", "send the request without one"
    else:
        message, fix = f"the body is larger than {most} bytes; split the request", "split the request"
    return TooLarge(message, violations=[Violation("", FaultCode.TOO_LARGE, message, fix)])
