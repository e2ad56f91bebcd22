"""Authorization: may the caller run the operation? Decided before the body is read (docs/decisions/0025)."""

from __future__ import annotations

from typing import Final

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.middleware.auth import OPEN_PATHS
from app.api.shared.deps import GRANT
from app.api.shared.operations import Operations
from app.api.shared.refusals import refuse
from app.core.errors import Forbidden

PERMITTED: Final = "keyfold.permitted"  # the member of the scope that has the id of the operation that was permitted


class Permits:
    """Refuses operations that the caller's grant does not include. A request without a route continues, and the router
    refuses it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        try:
            if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
                _check(scope)
        except Forbidden as error:
            await refuse(scope, receive, send, error)
            return
        await self.app(scope, receive, send)


def _check(scope: Scope) -> None:
    operations: Operations = scope["app"].state.operations
    routed = operations.routed(scope)
    if routed is None:
        return
    if routed.operation.need is not None:
        routed.operation.need.check(scope[GRANT], routed.names, scope["query_string"])
    scope[PERMITTED] = routed.operation.id


async def check_permitted(request: Request) -> None:
    """Raise ``RuntimeError`` if a route runs without having been authorized, which is a bug of the program."""
    if request.scope["path"] in OPEN_PATHS:
        return
    operation = request.scope["route"].operation_id
    if request.scope.get(PERMITTED) != operation:
        raise RuntimeError(f"the operation {operation} was not permitted")
