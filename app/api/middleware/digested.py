"""Answers with the digest that the caller requests (RFC 9530): ``Want-Content-Digest``."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from anyio import SpooledTemporaryFile
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.shared.refusals import refuse
from app.core.errors import KeyfoldError
from app.http.digests import CONTENT_DIGEST, WANT_CONTENT_DIGEST, digest_field, new_digest, wanted_digest

# This much of an answer is kept in memory; the rest waits in a temporary file.
_MEMORY_BYTES: Final = 2**20
# Largest answer that is digested: a page of a scan is half of it at most.
_MOST_BYTES: Final = 2**27
# Largest size of all held answers together.
_MOST_HELD_BYTES: Final = 2**30
_PART_BYTES: Final = 2**18
_NAME: Final = WANT_CONTENT_DIGEST.encode()


class Digested:
    """Buffers an answer until its digest is known; the digest is of the bytes as sent, maybe compressed. The header is
    optional: answers that are too large, endless or empty have none.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or scope["method"] == "HEAD" or all(name != _NAME for name, _ in scope["headers"]):
            await self.app(scope, receive, send)
            return
        try:
            algorithm = wanted_digest(",".join(Headers(scope=scope).getlist(WANT_CONTENT_DIGEST)))
        except KeyfoldError as error:
            await refuse(scope, receive, send, error)
            return
        if algorithm is None:
            await self.app(scope, receive, send)
            return
        async with SpooledTemporaryFile(max_size=_MEMORY_BYTES) as file:
            answer = _Answer(send, algorithm, file, self)
            try:
                await self.app(scope, receive, answer.take)
            except Exception:
                await answer.break_off()
                raise
            finally:
                self.held_bytes -= answer.size


class _Answer:
    """An answer on its way to ``send``: ``size`` bytes of it are held in ``file``."""

    def __init__(self, send: Send, algorithm: str, file: SpooledTemporaryFile[bytes], held: Digested) -> None:
        self.size = 0
        self._send, self._algorithm, self._file, self._all = send, algorithm, file, held
        self._digest: Any = new_digest(algorithm)
        self._start: Message | None = None  # until it is sent

    async def take(self, message: Message) -> None:
        """Process the next message of the application."""
        if message["type"] == "http.response.start" and not _is_without(message):
            self._start = message
        elif message["type"] != "http.response.body" or self._start is None:
            await self._send(message)
        elif self._has_room(len(message.get("body", b""))):
            await self._hold(message.get("body", b""))
            if not message.get("more_body", False):
                field = digest_field(self._algorithm, self._digest.digest())
                MutableHeaders(scope=self._start)[CONTENT_DIGEST] = field
                await self._let_go(self._start)
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            await self._let_go(self._start)
            await self._send(message)

    async def break_off(self) -> None:
        """Send the buffered part of an answer that failed: the client sees that it is truncated,
        as without a digest.
        """
        if self._start is not None:
            await self._let_go(self._start)

    def _has_room(self, more: int) -> bool:
        return self.size + more <= _MOST_BYTES and self._all.held_bytes + more <= _MOST_HELD_BYTES

    async def _hold(self, part: bytes) -> None:
        self.size += len(part)
        self._all.held_bytes += len(part)
        self._digest.update(part)
        await self._file.write(part)

    async def _let_go(self, start: Message) -> None:
        self._start = None
        await self._send(start)
        await self._file.seek(0)
        while part := await self._file.read(_PART_BYTES):
            await self._send({"type": "http.response.body", "body": part, "more_body": True})


def _is_without(start: Message) -> bool:
    media_type = Headers(raw=start["headers"]).get("content-type", "")
    return start["status"] == HTTPStatus.NOT_MODIFIED or media_type.startswith("text/event-stream")
