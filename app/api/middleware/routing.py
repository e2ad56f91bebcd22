"""Routes found by their path: a request is matched by the routes of one module, not by those of all before it, which
took more than half of the time of a small answer.
"""

from __future__ import annotations

import re
from typing import Final

from fastapi import APIRouter, FastAPI
from fastapi.routing import iter_route_contexts
from starlette._utils import get_route_path
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

_NAMED_GROUP: Final = re.compile(r"\(\?P<\w+>")


def find_routes_by_path(app: FastAPI) -> None:
    """Let a request go to the included router that alone has its path; where several or none have it, to all as before.
    Routes that are added later are not found.
    """
    every = app.router.app
    routers = [(_paths_of(route), _alone(app, route)) for route in app.router.routes]

    async def by_path(scope: Scope, receive: Receive, send: Send) -> None:
        found = []
        if scope["type"] == "http":
            path = get_route_path(scope)
            found = [router for paths, router in routers if paths.match(path)]
        if len(found) == 1:
            scope["router"] = app.router
            await found[0].app(scope, receive, send)
        else:
            await every(scope, receive, send)

    app.router.middleware_stack = by_path


def _paths_of(route: BaseRoute) -> re.Pattern[str]:
    """Return what matches the paths of a route, or of an included router."""
    patterns = [one.path_regex.pattern for one in iter_route_contexts([route])]
    return re.compile("|".join(_NAMED_GROUP.sub("(?:", pattern) for pattern in patterns))


def _alone(app: FastAPI, route: BaseRoute) -> APIRouter:
    router = APIRouter(redirect_slashes=False, default=app.router.default)
    router.routes.append(route)
    return router
