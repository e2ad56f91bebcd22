"""The methods of a path: all of them in ``Allow``, and HEAD for every GET."""

from __future__ import annotations

from fastapi import Request
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send


def allowed_methods(request: Request) -> list[str]:
    """Return the methods of all routes for the request's path, in alphabetical order."""
    routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    methods = {method for route in routes for method in route.methods or ()}
    return sorted(methods | {"HEAD"} if "GET" in methods else methods)


class HeadAsGet:
    """Answers HEAD as GET without the body: same status, same headers.

    A streaming answer sees the client disconnect after its first piece: server-sent events would never end.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        answer = _Headers(receive, send)
        as_get = {**scope, "method": "GET"}
        await self.app(as_get, answer.receive, answer.send)
        scope["route"] = as_get.get("route")  # the request is counted by it


class _Headers:
    """Sends the headers of one answer, and discards the rest."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._ended = False

    async def receive(self) -> Message:
        return {"type": "http.disconnect"} if self._ended else await self._receive()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._send(message)
        elif message["type"] == "http.response.body" and not self._ended:
            self._ended = True
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
