"""What holds for every page: how many are made at a time, how long its parts are kept, and what is no page."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from starlette.responses import Response

from app.console import routes as site
from app.console.routes import PAGES_AT_ONCE, install_console
from app.console.site.assets import asset_url
from app.console.site.gate import ConsoleGate
from app.console.site.visits import Page, Visit
from app.main import create_app
from app.settings import Settings
from tests.api.conftest import LOOPBACK
from tests.console.conftest import Browser

SLOW = "/console/slow"


class SlowPage:
    """A page that is made until ``end`` is set, and how many of it are made at a time."""

    def __init__(self) -> None:
        self.end = threading.Event()
        self.changed = threading.Condition()
        self.begun = 0

    def shows(self, _: Visit) -> Response:
        with self.changed:
            self.begun += 1
            self.changed.notify_all()
        self.end.wait(60)
        return Response("shown")

    def wait_for(self, begun: int) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: self.begun == begun, 60)


@pytest.fixture
def slow() -> Iterator[SlowPage]:
    page = SlowPage()
    yield page
    page.end.set()


def test_slow_pages_keep_no_lookup_waiting(tmp_path: Path, sqlite_template: Path, slow: SlowPage) -> None:
    (tmp_path / "catalog.sqlite").write_bytes(sqlite_template.read_bytes())
    settings = Settings(KEYFOLD_DATA=tmp_path, workers=0, console=False)
    app = create_app(settings)
    install_console(app)
    app.add_middleware(ConsoleGate, settings=settings, pages=[Page("GET", SLOW, slow.shows)])
    with TestClient(app, LOOPBACK) as client, ThreadPoolExecutor(60) as people:
        shown = [people.submit(client.get, SLOW) for _ in range(50)]
        assert slow.wait_for(PAGES_AT_ONCE)
        assert client.get("/v1/catalog/databases").status_code == 200
        assert client.post("/v1/catalog/databases", json={"name": "shop"}).status_code == 200
        assert slow.begun == PAGES_AT_ONCE
        slow.end.set()
        assert {answer.result().status_code for answer in shown} == {200}


def test_an_asset_is_kept_for_ever_at_the_address_of_its_content_only(browser: Browser) -> None:
    own = browser.get(asset_url("console.css"))
    assert "immutable" in own.headers["cache-control"]
    for other in ("/console/assets/console.css", "/console/assets/console.css?0000"):
        answer = browser.get(other)
        assert (answer.status_code, answer.headers["cache-control"], answer.text) == (200, "no-store", own.text)


@pytest.mark.parametrize("path", ["/console", "/console/"])
def test_the_console_is_found_where_people_look_for_it(browser: Browser, path: str) -> None:
    answer = browser.get(path)
    assert (answer.status_code, answer.headers["location"]) == (308, "/")


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS"])
def test_a_page_says_how_it_is_requested(wide: object, client: TestClient, method: str) -> None:
    for path in ("/", "/console/tables/shop/wide"):
        answer = client.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")


def test_what_changes_nothing_is_no_writer() -> None:
    assert [page.path for page in site.PAGES if page.reads] == [
        "/console/new/check",
        "/console/new/examples",
        "/console/tables/{database}/{table}/settings/check",
        "/console/playground",
    ]
