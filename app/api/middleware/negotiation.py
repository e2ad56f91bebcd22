"""Media types of answers: the one that the caller prefers, or 406 if it accepts none (RFC 9110, 12.5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import mimeparse
from fastapi import Request
from fastapi.datastructures import DefaultPlaceholder
from fastapi.routing import APIRoute

from app.api.middleware.declarations import Declared
from app.core.errors import FaultCode, NotAcceptable, Violation

JSON: Final = "application/json"


@lru_cache(maxsize=256)
def chosen(accept: str | None, offered: Sequence[str]) -> str:
    """Return the one of ``offered`` media types that the header ``accept`` prefers; the first of equally preferred
    ones.

    Raise ``NotAcceptable`` if it accepts none, or is malformed.
    """
    if not accept or accept == "*/*":
        return offered[0]
    try:
        best: str = mimeparse.best_match([*reversed(offered)], accept.lower())
    except mimeparse.MimeTypeParseException:
        best = ""
    if not best:
        message = f"the request accepts {accept[:200]!r}, and this is answered as {' or '.join(offered)}"
        fix = f"send Accept: {offered[0]}, or no Accept at all"
        raise NotAcceptable(message, violations=[Violation("", FaultCode.NOT_ACCEPTABLE, message, fix)])
    return best


@lru_cache(maxsize=256)
def takes_json(accept: bytes) -> bool:
    """Return whether a caller with this Accept header takes JSON."""
    try:
        return chosen(accept.decode("latin-1"), (JSON,)) == JSON
    except NotAcceptable:
        return False


class Acceptable:
    """Refuses a request whose caller takes none of the media types that its route declares, before anything is done."""

    def __init__(self) -> None:
        self._offered = Declared(answered_types)

    async def __call__(self, request: Request) -> None:
        """Raise ``NotAcceptable``."""
        accept = ",".join(request.headers.getlist("accept"))
        if not accept or accept == "*/*":
            return
        offered = self._offered.get(request.scope["route"])
        if offered:
            chosen(accept, offered)


def answered_types(route: APIRoute) -> tuple[str, ...]:
    """Return the media types of a route's answers, the default first; empty if it answers no body."""
    response = route.response_class
    response_class = response.value if isinstance(response, DefaultPlaceholder) else response
    answered = {status: response for status, response in route.responses.items() if str(status).startswith("2")}
    declared = [media_type for response in answered.values() for media_type in response.get("content", ())]
    return tuple(dict.fromkeys([*([response_class.media_type] if response_class.media_type else []), *declared]))
