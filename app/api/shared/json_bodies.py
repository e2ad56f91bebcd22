"""JSON bodies of routes that declare them: an object with a repeated member is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response

from app.api.shared.transactions import TransactionRoute
from app.core.errors import FaultCode, Invalid, Violation
from app.core.hints import cut


class _JsonRequest(Request):
    async def json(self) -> Any:
        return json.loads(await self.body(), object_pairs_hook=_once)


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object. Raise ``Invalid`` if a name comes twice: RFC 8259 leaves open which one counts."""
    by_name = dict(members)
    if len(by_name) != len(members):
        names = [name for name, _ in members]
        twice = next(name for name in names if names.count(name) > 1)
        message = f"the body names the member {cut(twice)!r} twice in one object"
        raise Invalid(message, violations=[Violation("", FaultCode.DUPLICATE_KEY, message, "send each member once")])
    return by_name


class JsonRoute(TransactionRoute):
    """A route whose body is JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler, called with a request whose body has unique members."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def read(request: Request) -> Response:
            return await handle(_JsonRequest(request.scope, request.receive))

        return read
