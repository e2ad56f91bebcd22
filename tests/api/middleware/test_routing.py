"""Routes are found by their path: those of other modules are not tried, and what is told of a path stays the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI, Request
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from starlette.routing import Match
from starlette.types import Scope

from app.api.middleware.routing import add_routes, find_routes_by_path
from app.api.shared.slashes import accept_trailing_slashes, register_convertors
from app.main import ROUTERS, create_app
from tests.builders import settings_with


class CountedRoute(APIRoute):
    """A route that counts how often it is tried."""

    tried = 0

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        CountedRoute.tried += 1
        return super().matches(scope)


def answering(name: str) -> Callable[[Request], Any]:
    async def answer(request: Request) -> dict[str, Any]:
        return {"name": name, "path": dict(request.path_params), "url": str(request.url_for("last", table="y"))}

    return answer


@pytest.fixture
def client() -> TestClient:
    register_convertors()
    app = FastAPI(redirect_slashes=False)
    routers = [APIRouter(prefix=f"/r{number}/{{table}}", route_class=CountedRoute) for number in range(5)]
    for number, router in enumerate(routers):
        for place in range(5):
            router.add_api_route(f"/{place}", answering(f"{number}/{place}"), methods=["GET"])
    rows = APIRouter(prefix="/t/{table}")
    rows.add_api_route("/rows/{key:key}", answering("row"), methods=["GET"])
    explained = APIRouter(prefix="/t/{table}")
    explained.add_api_route("/rows/{key:key}:explain", answering("explained"), methods=["POST"])
    explained.add_api_route("/last", answering("last"), name="last")
    routers += [rows, explained]
    add_routes(app, routers)
    accept_trailing_slashes(app)
    find_routes_by_path(app, routers)
    return TestClient(app, "http://localhost")


def test_routes_of_other_modules_are_not_tried(client: TestClient) -> None:
    before = CountedRoute.tried
    assert client.get("/t/x/last").json()["name"] == "last"
    assert CountedRoute.tried == before
    assert client.get("/r4/x/3").json() == {"name": "4/3", "path": {"table": "x"}, "url": "http://localhost/t/y/last"}
    assert CountedRoute.tried - before <= 10


def test_a_path_of_several_modules_goes_to_the_one_with_its_method(client: TestClient) -> None:
    assert client.get("/t/x/rows/7:explain").json()["path"] == {"table": "x", "key": "7:explain"}
    assert client.post("/t/x/rows/7:explain").json() == {
        "name": "explained",
        "path": {"table": "x", "key": "7"},
        "url": "http://localhost/t/y/last",
    }


def test_what_no_route_takes_is_reported_as_before(client: TestClient) -> None:
    assert client.get("/none").status_code == 404
    assert client.post("/r1/x/1").status_code == 405
    assert client.get("/r1/x/1/").json()["name"] == "1/1"
    assert client.get("/r1/x/1//").status_code == 404


def test_applications_share_the_routes_that_were_built_when_their_modules_were_loaded() -> None:
    built = {id(route) for router in ROUTERS for route in router.routes}
    for app in (create_app(settings_with()), create_app(settings_with())):
        assert built <= {id(route) for route in app.routes}
        assert not app.router.dependencies  # one of an application would have each of its routes built again
