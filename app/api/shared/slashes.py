"""Slashes at the end of a path: the same route as without, never a redirect, which would drop the body."""

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
    """An id in a path: it has no colon, behind which stands what is to be done with it (``{batch_id:id}:retry``)."""

    regex = "[^/:]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


def register_convertors() -> None:
    """Make ``{name:key}`` and ``{name:id}`` known to the router."""
    register_url_convertor("key", _KeyConvertor())
    register_url_convertor("id", _IdConvertor())


def accept_trailing_slashes(app: FastAPI) -> None:
    """Route a path that no route takes as it was sent, and that ends in a slash, as the path without that slash.

    What was sent decides: an encoded slash is part of a name or key, and so is a slash at the end of a key. A path that
    ends in several slashes is no route's: each would be one more walk of the router, inside the one before.
    """
    not_found = app.router.default

    async def without_slash(scope: Scope, receive: Receive, send: Send) -> None:
        shorter = without_last_slash(scope)
        if shorter is None:
            await not_found(scope, receive, send)
            return
        # In place: anyone who handles an error of the route must see the path that was routed.
        scope["path"], scope["raw_path"] = shorter
        await app.router.app(scope, receive, send)

    app.router.default = without_slash


def without_last_slash(scope: Scope) -> tuple[str, bytes] | None:
    """Return the path, decoded and as it was sent, without the one slash that it was sent with at its end; else
    None.
    """
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    if scope["type"] != "http" or len(raw) < 2 or not raw.endswith(b"/") or raw.endswith(b"//"):
        return None
    return scope["path"][:-1], raw[:-1]
