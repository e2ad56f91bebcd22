"""Every request is counted, timed and named: the outermost middleware (docs/decisions/0027)."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Iterable
from itertools import count
from typing import Final

from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.shared.outgoing import REQUEST_ID, Outgoing, Unread
from app.api.shared.problems import internal_error, refusal
from app.core.errors import Unavailable
from app.http.members import OPERATION
from app.telemetry.entries import GONE, NO_OPERATION, STATUSES
from app.telemetry.logs import begin_request
from app.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)
ANSWER: Final = "keyfold.answer"  # the member that has the ``Outgoing``
_LEGAL_ID: Final = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_GONE: Final = len(STATUSES)  # in the place of the first digit of a status


class Observed:
    """Gives each request an id, by default that of its ``X-Request-Id``, for the answer and the log. Counts it by
    operation and status, answers unexpected errors, and with ``log_requests`` logs one line for it.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, *, log_requests: bool = False) -> None:
        self.app = app
        self._metrics = metrics
        self._log_requests = log_requests
        self._process = secrets.token_hex(6)  # created with the first request, hence after the fork
        self._numbers = count(1)
        self._unread = Unread()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        scope[ANSWER] = answer = Outgoing(scope, send, _sent_id(scope["headers"]) or self._next_id(), self._unread)
        begin_request(answer.id)
        try:
            await self.app(scope, receive, answer.send)
        except ClientDisconnect:
            pass  # noted below
        except asyncio.CancelledError:
            await self._cut(scope, receive, answer)
        except Exception as error:
            answer.outcome = 500
            if (
                answer.status
            ):  # the server closes the connection, so that the client does not take the answer as complete
                raise
            await internal_error(Request(scope), error)(scope, receive, answer.send)
        finally:
            del scope[ANSWER]  # which has the scope: a reference cycle for each request
            seconds, outcome = time.perf_counter() - began, answer.outcome
            self._metrics.answered(scope.get(OPERATION) or operation_of(scope), outcome // 100 or _GONE, seconds)
            if not outcome or self._log_requests:
                self._log(scope, outcome, seconds)

    def _next_id(self) -> bytes:
        return f"{self._process}-{next(self._numbers):x}".encode()

    async def _cut(self, scope: Scope, receive: Receive, answer: Outgoing) -> None:
        """Handle the end of the server's patience: an answer that has begun stays incomplete, and the server closes
        the connection.
        """
        answer.outcome = 503
        logger.info("%s %s: cut off, for the service stops", scope["method"], scope["path"])
        if not answer.status:
            error = Unavailable("the service stops and did not finish the request; retry")
            await refusal(Request(scope), error)(scope, receive, answer.send)

    def _log(self, scope: Scope, outcome: int, seconds: float) -> None:
        method, path = scope["method"], scope["path"]
        if not outcome:
            logger.debug("%s %s: the client disconnected before its answer was complete", method, path)
        if self._log_requests:
            members = {"method": method, "path": path, "status": outcome or None, "operation": operation_of(scope)}
            line = f"{method} {path} {outcome or GONE} {seconds * 1000:.1f} ms"
            logger.info("%s", line, extra={**members, "seconds": round(seconds, 6)})


def _sent_id(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    for name, value in headers:
        if name == REQUEST_ID:
            return value if _LEGAL_ID.fullmatch(value) else None
    return None


def operation_of(scope: Scope) -> str:
    """Return the operation id of the route that took the request, or ``NO_OPERATION``."""
    named: str | None = scope.get(OPERATION) or getattr(scope.get("route"), "operation_id", None)
    return named or NO_OPERATION


def operations_of(app: FastAPI) -> list[str]:
    """Return the operation ids of all routes."""
    ids = (getattr(route, "operation_id", None) for route in app.routes)
    return [operation_id for operation_id in ids if operation_id is not None]
