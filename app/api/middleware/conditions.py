"""Conditional requests (RFC 9110, 13): ETags, 304 for unchanged answers, 412 for tables that have changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

from fastapi import Header, Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from xxhash import xxh3_128_hexdigest

from app.api.middleware.declarations import Declared
from app.core.errors import FaultCode, Invalid, PreconditionFailed, Violation
from app.core.table.history import Table
from app.services.tables.tables import version_of

# A cache of one user's may keep it, and asks whether it still holds; proxies keep nothing that a token was needed for.
REVALIDATE: Final = (b"cache-control", b"private, no-cache")
NO_STORE: Final = (b"cache-control", b"no-store")
VARY: Final = (b"vary", b"Accept, Accept-Encoding, Prefer, Keyfold-Client")
_LIVE_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_OF_BODY: Final = (b"content-length", b"content-type")
_CONDITIONS: Final = ("if-match", "if-none-match", "if-unmodified-since")  # of a write; of GET, If-None-Match is taken

IfMatch = Annotated[
    str | None, Header(description="the ETag of the table as it was read: 412 if the table has changed since")
]


def is_known(if_none_match: str, etag: str) -> bool:
    """Return whether a caller with this header already has the answer with ``etag``."""
    known = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in known or known == ["*"]


def table_etag(table: Table) -> str:
    """Return the ETag of the table's description: it changes with every ALTER and rename, not with rows."""
    return f'"{version_of(table)}"'


def unchanged(if_match: str | None) -> Callable[[Table], None]:
    """Return the check of an ``If-Match`` header; it raises ``PreconditionFailed`` if the table has another ETag."""

    def check(table: Table) -> None:
        if if_match is None or if_match.strip() == "*":
            return
        etag = table_etag(table)
        if etag not in [tag.strip() for tag in if_match.split(",")]:
            message = f"table {table.full_name} has changed since: its ETag is {etag}, If-Match says {if_match[:200]}"
            fix = "read the table again, look whether the change is still right, and send its new ETag"
            raise PreconditionFailed(message, violations=[Violation("", FaultCode.CHANGED_SINCE, message, fix)])

    return check


class TakenConditions:
    """Refuses conditional writes on routes that do not check the condition: ignoring it would deceive the caller."""

    def __init__(self) -> None:
        self._taken = Declared(_parameters)

    async def __call__(self, request: Request) -> None:
        """Raise ``Invalid``."""
        if request.method in ("GET", "HEAD"):
            return
        sent = [name for name in _CONDITIONS if name in request.headers]
        if not sent:
            return
        taken = self._taken.get(request.scope["route"])
        faults = [_not_taken(name) for name in sent if name not in taken]
        if faults:
            raise Invalid(faults[0].message, violations=faults)


def _parameters(route: APIRoute) -> frozenset[str]:
    return frozenset(param.alias for param in get_flat_params(route.dependant))


def _not_taken(name: str) -> Violation:
    message = f"this operation does not look at {name.title()}: any value would have the same effect"
    fix = "leave it out; the table's sequence fields decide which record of a row wins, not the order of reads"
    return Violation("", FaultCode.CONDITION_NOT_TAKEN, message, fix)


class Revalidated:
    """Adds an ETag to whole answers to GET, a digest of their bytes if the route set none. Answers 304 if the request
    names that ETag.

    Sets Cache-Control on every answer to GET; streams and answers that always change are not cached.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http" and scope["method"] == "GET":
            send = _Validated(scope, send).send
        await self.app(scope, receive, send)


class _Validated:
    """One answer on its way out; it begins with its first piece of body."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope, self._send = scope, send
        self._start: Message | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            self._start = message
            return
        start, self._start = self._start, None
        if start is not None:
            whole = None if message.get("more_body", False) else message.get("body", b"")
            if self._prepared(start, whole):
                message = {"type": "http.response.body", "body": b""}
            await self._send(start)
        await self._send(message)

    def _prepared(self, start: Message, whole: bytes | None) -> bool:
        """Complete the headers in ``start``; return whether the caller has the body. ``start`` is a 304 then."""
        headers: list[tuple[bytes, bytes]] = [*start.get("headers", ())]
        start["headers"] = headers
        present = {name.lower(): value for name, value in headers}
        keeps = whole is not None and self._scope["path"] not in _LIVE_PATHS
        if b"cache-control" not in present:
            headers.append(REVALIDATE if keeps else NO_STORE)
        if not keeps or present.get(b"cache-control") == b"no-store":
            return False
        if b"vary" not in present:
            headers.append(VARY)
        etag = present.get(b"etag") or f'"{xxh3_128_hexdigest(whole or b"")}"'.encode()
        if b"etag" not in present:
            headers.append((b"etag", etag))
        sent = [value.decode("latin-1") for name, value in self._scope["headers"] if name == b"if-none-match"]
        if not sent or not is_known(",".join(sent), etag.decode("latin-1")):
            return False
        start["status"] = 304
        start["headers"] = [(name, value) for name, value in headers if name.lower() not in _OF_BODY]
        return True
