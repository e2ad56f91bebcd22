"""The audit log of requests: changes of databases, tables and tokens, and refused callers."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.shared.deps import GRANT, Parts
from app.api.shared.operations import Operations, Routed
from app.core.access import EVERYBODY, Grant
from app.core.errors import KeyfoldError, Resource
from app.http.members import OPERATION, REFUSAL
from app.services.operating.audit_log import AuditLog

NOTES: Final = "keyfold.audit"  # the member of the scope in which a route notes what a path does not say
_REFUSED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class Notes:
    """The members that a route adds to its line of the audit log: names and keys of options, never values."""

    def __init__(self) -> None:
        self.members: dict[str, object] | None = {}

    def add(self, **members: object) -> None:
        """Add members to the line."""
        if self.members is not None:
            self.members |= members

    def nothing(self) -> None:
        """Write no line, because nothing was stored."""
        self.members = None


async def _notes(request: Request) -> Notes:
    notes: Notes = request.scope.setdefault(NOTES, Notes())
    return notes


NotesDep = Annotated[Notes, Depends(_notes)]


class Audited:
    """Writes the line of a request before its answer goes out. A 429 has no line, since the failures before it have
    theirs.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        log = _log_of(scope) if scope["type"] == "http" else None
        if log is None:
            await self.app(scope, receive, send)
            return
        scope[NOTES] = Notes()

        async def written(message: Message) -> None:
            if message["type"] == "http.response.start":
                _write(log, scope, message["status"])
            await send(message)

        await self.app(scope, receive, written)


def _log_of(scope: Scope) -> AuditLog | None:
    parts: Parts = scope["app"].state.parts
    return parts.audit


def _write(log: AuditLog, scope: Scope, status: int) -> None:
    operations: Operations = scope["app"].state.operations
    routed = operations.routed(scope)
    if status in _REFUSED:
        log.write(**_request(scope, routed), outcome="refused", status=status, errors=_codes(scope))
    elif routed is not None and routed.operation.need is not None and routed.operation.need.audited:
        notes: Notes = scope[NOTES]
        if notes.members is not None and (status < 400 or status >= 500):
            outcome = "done" if status < 400 else "failed"
            log.write(**_request(scope, routed) | notes.members, outcome=outcome, status=status)


def _request(scope: Scope, routed: Routed | None) -> dict[str, Any]:
    """Return the caller and the operation. The path is left out: it may hold a key."""
    operation = scope.get(OPERATION) if routed is None else routed.operation.id
    names: Mapping[str, str] = {} if routed is None else routed.names
    address = (scope.get("client") or (None,))[0]
    return {"token": _token(scope), "address": address, "operation": operation, **names}


def _token(scope: Scope) -> str | None:
    """Return the name of the token, also of one that has expired."""
    grant: Grant = scope.get(GRANT, EVERYBODY)
    refusal: KeyfoldError | None = scope.get(REFUSAL)
    if refusal is not None and refusal.resource_type == Resource.TOKEN and GRANT not in scope:
        return refusal.resource_name
    return grant.name or None


def _codes(scope: Scope) -> list[str]:
    refusal: KeyfoldError | None = scope.get(REFUSAL)
    return [] if refusal is None else [fault.code for fault in refusal.violations]
