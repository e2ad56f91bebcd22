"""Outgoing answers, and the memory of those that their clients have not read yet (docs/sizing.md, Bounds)."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.types import Message, Scope, Send

from app.api.shared.problems import refusal
from app.core.errors import FaultCode, Unavailable, Violation

REQUEST_ID: Final = b"x-request-id"
NO_SNIFFING: Final = (b"x-content-type-options", b"nosniff")  # a browser must not guess another type
# Answers of this size or more are sent in pieces, and count until they are sent.
LARGE_BYTES: Final = 2**18
MOST_UNREAD_BYTES: Final = 2**29
Headers = list[tuple[bytes, bytes]]


class Unread:
    """The large outgoing answers of a process, with at most ``most`` bytes together. For one event loop."""

    def __init__(self, most: int = MOST_UNREAD_BYTES) -> None:
        self._most = most
        self._taken = 0

    def take(self, size: int) -> bool:
        """Reserve room for an answer of ``size`` bytes. Return whether there is room; for the first answer there
        always is.
        """
        if self._taken and self._taken + size > self._most:
            return False
        self._taken += size
        return True

    def give(self, size: int) -> None:
        """Free the room of a piece of ``size`` bytes that was sent."""
        self._taken -= size


class Outgoing:
    """The answer of one request on its way out. ``status`` is 0 until it begins; ``outcome`` is the status for
    metrics: that of a completely sent answer, 0 if the client disconnected before.
    """

    __slots__ = ("_headers", "_scope", "_send", "_status", "_unread", "id", "outcome", "status")

    def __init__(self, scope: Scope, send: Send, request_id: bytes, unread: Unread) -> None:
        self.id = request_id
        self.status = self.outcome = 0
        self._scope, self._send, self._unread = scope, send, unread
        self._status, self._headers = 0, list[tuple[bytes, bytes]]()

    async def send(self, message: Message) -> None:
        """Send ``message``, the first with the request's id. It begins with its first piece of body."""
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], [*message.get("headers", ())]
            return
        more = message.get("more_body", False)
        if not self.status and not more:
            await self.send_whole(self._status, self._headers, message.get("body", b""))
            return
        if not self.status:
            await self._begin(self._status, self._headers)
        if not more:
            self.outcome = self.status
        elif len(message.get("body", b"")) > LARGE_BYTES:
            await self._send_pieces(memoryview(message["body"]))
            return
        await self._send(message)

    async def send_whole(self, status: int, headers: Headers, body: bytes) -> None:
        """Send the whole answer; a large one in pieces, so that a slow reader takes the memory of one piece. Send 503
        instead if too many answers are unread.
        """
        if len(body) <= LARGE_BYTES:
            await self._begin(status, headers)
            self.outcome = status
            await self._send({"type": "http.response.body", "body": body})
        elif self._unread.take(len(body)):
            try:
                await self._in_pieces(status, headers, memoryview(body))
            finally:
                self._unread.give(len(body))
        else:
            response = refusal(Request(self._scope), _no_room())
            await self.send_whole(response.status_code, [*response.raw_headers], bytes(response.body))

    async def _in_pieces(self, status: int, headers: Headers, body: memoryview) -> None:
        await self._begin(status, headers)
        await self._send_pieces(body)
        self.outcome = status
        await self._send({"type": "http.response.body", "body": b""})

    async def _send_pieces(self, body: memoryview) -> None:
        """Send a large part of an answer in pieces, with pauses for other requests: each piece may be compressed."""
        for start in range(0, len(body), LARGE_BYTES):
            piece = bytes(body[start : start + LARGE_BYTES])
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)

    async def _begin(self, status: int, headers: Headers) -> None:
        self.status = status
        headers.append((REQUEST_ID, self.id))
        if all(name.lower() != b"x-content-type-options" for name, _ in headers):
            headers.append(NO_SNIFFING)
        await self._send({"type": "http.response.start", "status": status, "headers": headers})


def _no_room() -> Unavailable:
    message = "too many large answers of this process are not read yet by their clients; retry in a moment"
    fix = "read answers faster, request less at a time, or run more processes (KEYFOLD_PROCESSES)"
    return Unavailable(message, violations=[Violation("", FaultCode.TOO_MANY, message, fix)])
