"""The application as a browser meets it: forms with what their page gave, the cookie, the Origin that browsers send."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from playwright.sync_api import Browser as Chromium

from app.core.access import Role
from app.core.table.history import TaskTrigger
from app.http.parts import Parts
from app.services.access.tokens import create_token
from tests.api.conftest import LOOPBACK, TABLES, Create, app, built_app, client, create, merge, shop, wide
from tests.catalog.builders import claim_next
from tests.console.chromium import chromium
from tests.console.merged import FIELDS, MANUAL, Merged, MergedTable
from tests.service import Client, serving

__all__ = ["app", "built_app", "client", "create", "merge", "shop", "wide"]
_CSRF = re.compile(r'name="csrf" value="(\w+)"')


class Browser:
    """A browser of one person: it keeps the cookie, and sends forms of the page that it shows."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        self.client.cookies.clear()
        self.shown = ""

    def get(self, path: str, **headers: str) -> Any:
        """Opens a page."""
        answer = self.client.get(path, headers=headers, follow_redirects=False)
        self.shown = answer.text or self.shown
        return answer

    def text(self, path: str) -> str:
        """What a page says, without its tags."""
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return words(answer.text)

    def send(self, path: str, **fields: Any) -> Any:
        """Sends a form of the page that is shown."""
        found = _CSRF.search(self.shown)
        assert found, self.shown
        return self.post(path, csrf=found[1], **fields)

    def post(self, path: str, **fields: Any) -> Any:
        """Sends a form, as a page of this service does."""
        headers = {"Origin": LOOPBACK, "Sec-Fetch-Site": "same-origin"}
        answer = self.client.post(path, data=fields, headers=headers, follow_redirects=False)
        self.shown = answer.text or self.shown
        return answer

    def sign_in(self, token: str) -> Any:
        """Opens the page that asks for a token, and sends one."""
        self.get("/console/sign-in")
        return self.send("/console/sign-in", token=token, next="/")


def live_part(page: str) -> str:
    """The address of the part of a page that is asked for again and again."""
    found = re.search(r'hx-get="([^"]+)"', page)
    assert found
    return unescape(found[1])


def link_of(page: str, name: str) -> str:
    """The address to which a link of a name leads."""
    found = re.search(rf'href="([^"]+)"[^>]*>{name}', page)
    assert found
    return unescape(found[1]).partition("#")[0]


def fail_merge(app: FastAPI, table: str, reason: str) -> None:
    """A merge of a table of ``shop`` that is begun and fails, as in a worker."""
    parts: Parts = app.state.parts
    with parts.database.transaction() as repository:
        repository.tasks.request(repository.tables.get("shop", table).id, TaskTrigger.REQUEST)
        claimed = claim_next(repository, "w", 60.0)
        assert claimed is not None
        repository.claimed_tasks.fail(claimed.task.id, "w", reason)


SignedIn = Callable[..., Browser]


def words(page: str) -> str:
    """The text of a page, without what a browser does not show."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())


@pytest.fixture(scope="module")
def chrome() -> Iterator[Chromium]:
    """A real browser, for the tests of one file."""
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of ``service``."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="session")
def service(data: Path) -> Iterator[Client]:
    """A service without tokens and without Spark, with the database ``shop``; each file makes tables of other names."""
    with serving(data, workers="0") as (_, client):
        client.create_database("shop")
        yield client


@pytest.fixture
def browser(client: TestClient) -> Browser:
    """A browser on a service that has no tokens."""
    return Browser(client)


@pytest.fixture
def signed_in(app: FastAPI, client: TestClient) -> SignedIn:
    """Makes a token of a role, and a browser in which somebody signed in with it."""

    def open_browser(role: Role = Role.ADMIN, on: tuple[str, ...] = ("*",), name: str = "") -> Browser:
        parts: Parts = app.state.parts
        opened = Browser(client)
        assert opened.sign_in(create_token(parts.database, name or role.value, role, on)).status_code == 303
        return opened

    return open_browser


@pytest.fixture
def merged(app: FastAPI, create: Create, client: TestClient) -> Merged:
    """Creates a table of ``shop`` whose batches are merged when they are posted."""

    def create_merged(name: str = "wide", **options: str) -> MergedTable:
        created = create(name, fields=FIELDS, options={**MANUAL, **options})
        parts: Parts = app.state.parts
        path = f"{TABLES}/{quote(name, safe='')}"
        return MergedTable(client, path, created["id"], parts.database, parts.warehouse)

    return create_merged
