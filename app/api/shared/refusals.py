"""Refuses a request without reading its whole body."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from app.api.shared.problems import refusal
from app.core.errors import KeyfoldError
from app.http.unread import answer_unread


async def refuse(scope: Scope, receive: Receive, send: Send, error: KeyfoldError) -> None:
    """Answer ``error`` at once, and then close the connection if the body has not been received completely."""
    await answer_unread(scope, receive, send, refusal(Request(scope), error))
