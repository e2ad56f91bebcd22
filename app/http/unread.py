"""Answers a request without reading its whole body."""

from __future__ import annotations

from typing import Final

import anyio
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

DISCARD_SECONDS: Final = 10.0
_SILENCE_SECONDS: Final = 2.0


class Incoming:
    """The ``receive`` of a request; ``whole``: the body was received completely, or will not come."""

    def __init__(self, receive: Receive) -> None:
        self.whole = False
        self._receive = receive

    async def __call__(self) -> Message:
        """Return the next message."""
        message = await self._receive()
        self.whole = not message.get("more_body", False)
        return message


async def answer_unread(scope: Scope, receive: Receive, send: Send, response: Response) -> None:
    """Send ``response`` at once, and then close the connection if the body has not been received completely.

    Further bytes of the client are discarded for up to ten seconds: closing with unread bytes would reset the
    connection, and lose the answer.
    """
    if (isinstance(receive, Incoming) and receive.whole) or not has_body(Headers(scope=scope)):
        await response(scope, receive, send)
        return
    response.headers["Connection"] = "close"
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    await _discard(receive)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def has_body(headers: Headers) -> bool:
    """Return whether the request announces a body."""
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


async def _discard(receive: Receive) -> None:
    with anyio.move_on_after(DISCARD_SECONDS):
        more = True
        while more:
            more = False
            with anyio.move_on_after(_SILENCE_SECONDS):
                more = (await receive()).get("more_body", False)
