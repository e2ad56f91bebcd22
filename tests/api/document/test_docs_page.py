"""``/docs`` works without any other host, knows the token, and tries what the document says."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.document.docs_page import DOCS_PATH, PAGE_PATHS
from app.api.shared.deps import Parts
from app.services.access.tokens import create_token


class _Page(HTMLParser):
    """What a page loads, where it leads, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.links: list[str] = []
        self.inline: list[str] = []
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_script = tag == "script"
        into = self.links if tag == "a" else self.parts
        into += [value for name, value in attrs if name in ("src", "href") and value]
        self.inline += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        if self._in_script and data.strip():
            self.inline.append(data)


@pytest.fixture
def closed(app: FastAPI, client: TestClient) -> TestClient:
    """A client without a token, of a service that asks for one."""
    parts: Parts = app.state.parts
    create_token(parts.database, "somebody")
    return client


def test_the_page_and_all_of_its_parts_are_of_this_service_and_open(closed: TestClient) -> None:
    page = closed.get(DOCS_PATH)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    parts = [urljoin(DOCS_PATH, part) for part in _Page(page.text).parts]
    assert {*parts, DOCS_PATH} == PAGE_PATHS
    kinds = {"js": "javascript", "css": "text/css", "png": "image/png"}
    for part in parts:
        answer = closed.get(part)
        assert answer.status_code == 200, part
        assert kinds[part.rsplit(".", 1)[1]] in answer.headers["content-type"]
        assert answer.content
    assert closed.get("/openapi.json").status_code == 200


def test_the_page_leads_back_to_the_console(client: TestClient) -> None:
    assert [urljoin(DOCS_PATH, link) for link in _Page(client.get(DOCS_PATH).text).links] == ["/"]
    own = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
    assert client.head("/", headers=own).status_code == 200  # as the page's script asks whether there is one


def test_neither_page_nor_start_names_another_host_or_runs_text_of_the_page(closed: TestClient) -> None:
    page, start = closed.get(DOCS_PATH), closed.get(f"{DOCS_PATH}/start.js")
    assert not re.findall(r"(?:https?:)?//[a-z]", page.text + re.sub(r"^//.*$", "", start.text, flags=re.MULTILINE))
    assert _Page(page.text).inline == []
    policy = dict(one.strip().split(" ", 1) for one in page.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"


def test_the_token_is_kept_and_sent(closed: TestClient) -> None:
    start = closed.get(f"{DOCS_PATH}/start.js").text
    assert "persistAuthorization: true" in start
    assert "url: 'openapi.json'" in start
    document = closed.get("/openapi.json").json()
    assert document["components"]["securitySchemes"]["token"]["type"] == "http"
    assert {"token": []} in document["security"]
