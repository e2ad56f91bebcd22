"""Trailing slashes: the same route as without, never a redirect, which would drop the body."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.convertors import Convertor, register_url_convertor
from starlette.types import Receive, Scope, Send


class _KeyConvertor(Convertor[str]):
    """A key in a path: any text but the empty one, slashes and line feeds included."""

    regex = r"(?s:.+)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


class _IdConvertor(Convertor[str]):
    """An id in a path: it has no colon, which separates the action (``{batch_id:id}:retry``)."""

    regex = "[^/:]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


def register_convertors() -> None:
    """Register ``{name:key}`` and ``{name:id}`` with the router."""
    register_url_convertor("key", _KeyConvertor())
    register_url_convertor("id", _IdConvertor())


def accept_trailing_slashes(app: FastAPI) -> None:
    """Route a path with a trailing slash like the path without it, unless a route takes it as it was sent.

    An encoded slash is part of a name or key, and so is a slash at the end of a key. A path with several trailing
    slashes has no route: each would cost another walk through the router.
    """
    not_found = app.router.default

    async def without_slash(scope: Scope, receive: Receive, send: Send) -> None:
        shorter = without_last_slash(scope)
        if shorter is None:
            await not_found(scope, receive, send)
            return
        # In place, so that error handlers see the path that was routed.
        scope["path"], scope["raw_path"] = shorter
        await app.router.app(scope, receive, send)

    app.router.default = without_slash


def without_last_slash(scope: Scope) -> tuple[str, bytes] | None:
    """Return the path, decoded and as it was sent, without its single trailing slash; None if it has none."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    if scope["type"] != "http" or len(raw) < 2 or not raw.endswith(b"/") or raw.endswith(b"//"):
        return None
    return scope["path"][:-1], raw[:-1]
