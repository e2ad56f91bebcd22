"""The routers. A request is matched by the routes of one module only: matching all routes took more than half of the
time of a small answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from fastapi import APIRouter, FastAPI
from starlette._utils import get_route_path
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from app.api.middleware.checks import OnlyChecked
from app.api.shared.transactions import TransactionRoute

# What all routes share is set on the router: FastAPI then builds each route once. Set on an application, it would
# build each again for every application. Paimon's clients send JSON without a Content-Type.
Router: Final = partial(APIRouter, route_class=TransactionRoute, dependencies=[OnlyChecked], strict_content_type=False)
_NAMED_GROUP: Final = re.compile(r"\(\?P<\w+>")


def add_routes(app: FastAPI, routers: Iterable[APIRouter]) -> None:
    """Add the routes to ``app``."""
    for router in routers:
        app.router.routes.extend(router.routes)


def find_routes_by_path(app: FastAPI, routers: Iterable[APIRouter]) -> None:
    """Send a request to the only router that has its path; if several or none have it, to all as before. Routes that
    are added later are not found.
    """
    every = app.router.app
    grouped = [router.routes for router in routers]
    route_ids = {id(route) for routes in grouped for route in routes}
    others = [[route] for route in app.routes if id(route) not in route_ids]
    alone = [(_paths_of(routes), _alone(app, routes)) for routes in (*grouped, *others)]

    async def by_path(scope: Scope, receive: Receive, send: Send) -> None:
        matching = []
        if scope["type"] == "http":
            path = get_route_path(scope)
            matching = [router for paths, router in alone if paths.match(path)]
        if len(matching) == 1:
            scope["router"] = app.router
            await matching[0].app(scope, receive, send)
        else:
            await every(scope, receive, send)

    app.router.middleware_stack = by_path


def _paths_of(routes: Sequence[BaseRoute]) -> re.Pattern[str]:
    patterns: list[str] = [route.path_regex.pattern for route in routes]  # type: ignore[attr-defined]  # all have one
    return re.compile("|".join(_NAMED_GROUP.sub("(?:", pattern) for pattern in patterns))


def _alone(app: FastAPI, routes: Sequence[BaseRoute]) -> APIRouter:
    router = APIRouter(redirect_slashes=False, default=app.router.default)
    router.routes.extend(routes)
    return router
