"""What holds for every page there is: the list of pages is walked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.routing import compile_path

import app.console
from app.console.routes import PAGES
from app.console.site.visits import Page
from app.core.access import Role
from app.services.access.tokens import create_token
from tests.api.conftest import LOOPBACK, TABLES, Create
from tests.console.conftest import Browser, SignedIn
from tests.console.test_browser import SHOWN

CLOSED = [page for page in PAGES if page.role is not None]
FRAGMENTS = {  # parts of pages, which those show, and a file
    "/console/tables",
    "/console/operations/hour",
    "/console/tables/{database}/{table}/batches/list",
    "/console/tables/{database}/{table}/merges/list",
    "/console/tables/{database}/{table}/row/sent",
    "/console/tables/{database}/{table}/rows/download",
    "/console/tables/{database}/{table}/changelog/live",
}
OWN = {"Origin": LOOPBACK, "Sec-Fetch-Site": "same-origin"}


def named(page: Page) -> str:
    return f"{page.method} {page.path}"


def address(page: Page) -> str:
    return re.sub(r"{\w+}", "wide", page.path)


@pytest.mark.parametrize("page", CLOSED, ids=named)
def test_a_page_is_closed_to_who_has_not_signed_in(app: FastAPI, client: TestClient, page: Page) -> None:
    create_token(app.state.parts.database, "boss")
    answer = client.request(page.method, address(page), headers=OWN, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"].split("?")[0]) == (303, "/console/sign-in")


@pytest.mark.parametrize("page", [page for page in PAGES if page.method != "GET"], ids=named)
def test_nothing_changes_without_what_a_page_gave(client: TestClient, page: Page) -> None:
    for headers in ({}, {"Origin": "https://evil.example"}, OWN):
        assert client.post(address(page), headers=headers, follow_redirects=False).status_code == 403


@pytest.mark.parametrize("page", [page for page in CLOSED if "{table}" in page.path], ids=named)
def test_a_page_of_a_table_is_for_tokens_of_that_table(signed_in: SignedIn, page: Page) -> None:
    browser = signed_in(Role.ADMIN, ("shop.*", "wide.other"))  # the page is of wide.wide
    browser.get("/")
    answer = browser.get(address(page)) if page.method == "GET" else browser.send(address(page))
    assert answer.status_code == 403


@pytest.mark.parametrize("page", [page for page in PAGES if page.method == "GET"], ids=named)
def test_a_page_is_kept_by_no_cache_and_frames(wide: object, client: TestClient, page: Page) -> None:
    answer = client.get(address(page).replace("/wide/wide", "/shop/wide"), follow_redirects=False)
    assert answer.headers["cache-control"] == "no-store"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


def test_pages_are_read_without_a_script_and_lead_to_search_and_reference(wide: object, browser: Browser) -> None:
    for path in SHOWN:
        answer = browser.get(path)
        assert (answer.text.count("<main"), answer.text.count("<h1")) == (1, 1), path
        for lead in ('action="/console/search"', 'href="/console/reference"'):
            assert lead in answer.text or answer.status_code == 404, path


@pytest.mark.parametrize("path", [path for path in SHOWN if path.partition("?")[0] != "/"])
def test_a_page_says_where_it_is_by_links_that_lead_somewhere(wide: object, browser: Browser, path: str) -> None:
    browser.client.post(f"{TABLES}/wide/batches", json={"records": [{"id": 1}]}).raise_for_status()
    trail = re.search(r'aria-label="Breadcrumbs"><ol>(.*?)</ol>', browser.get(path).text)
    assert trail
    links = re.findall(r'href="([^"]+)"', trail[1])
    assert links[0] == "/"
    assert ("/console/tables/shop/wide" in links) is path.startswith("/console/tables/shop/wide/")
    assert ("/?database=shop" in links) is path.startswith("/console/tables/shop/wide")
    assert trail[1].count('aria-current="page"') == 1
    assert [browser.get(link.replace("&amp;", "&")).status_code for link in links] == [200] * len(links)


@pytest.mark.parametrize(
    ("path", "links"), [("/console/tables/shop/gone/rows", ["/", "/?database=shop"]), ("/console/tables/gone/x", ["/"])]
)
def test_a_failure_leads_to_what_exists_above_it(wide: object, browser: Browser, path: str, links: list[str]) -> None:
    trail = re.search(r'aria-label="Breadcrumbs"><ol>(.*?)</ol>', browser.get(path).text)
    assert trail
    assert re.findall(r'href="([^"]+)"', trail[1]) == links


TEMPLATES = Path(app.console.__path__[0]) / "templates"
EMPTY = [
    (path.name, words)
    for path in sorted(TEMPLATES.rglob("*.html"))
    if path.parent.name != "row"
    for words in re.findall(r'<p class="empty[^"]*">(.*?)</p>', path.read_text())
]


@pytest.mark.parametrize(("name", "words"), EMPTY)
def test_a_list_without_entries_says_where_to_go_on(name: str, words: str) -> None:
    tail = words.rpartition("{% endif %}")[2]
    branches = [tail] if "<a href" in tail else re.split(r"{% (?:else|elif [^%]*) %}", words)
    assert [branch for branch in branches if "<a href" not in branch and "begin(" not in branch] == [], name


ROWS = "/console/tables/shop/wide/rows"
NEAR = [
    ("/console/tables/shop/wdie/rows", "/console/tables/shop/wide"),
    ("/console/tables/shpo/wide", "/?database=shop"),
    ("/?database=shpo", "/?database=shop"),
    (f"{ROWS}?filter=noet.eq.a&show=id", f"{ROWS}?filter=note.eq.a&amp;show=id"),
    (f"{ROWS}?show=noet", f"{ROWS}?show=note"),
]


@pytest.mark.parametrize(("path", "near"), NEAR)
def test_a_name_that_is_not_there_leads_to_the_nearest(wide: object, browser: Browser, path: str, near: str) -> None:
    page = browser.get(path).text.partition('aria-label="Breadcrumbs"')[2].partition("</nav>")[2]
    assert f'<a href="{near}">' in page
    assert browser.get(near.replace("&amp;", "&")).status_code == 200


def test_no_name_is_shown_that_the_token_is_not_for(create: Create, signed_in: SignedIn) -> None:
    create("wide")
    create("wild")
    browser = signed_in(Role.READ, ("shop.wild", "shop.wids"))
    page = browser.get("/console/tables/shop/wids").text
    assert '<a href="/console/tables/shop/wild">wild</a>' in page
    assert "wide" not in page


NEAREST = [
    ("/console/operationz", "/console/operations"),
    ("/console/operations/tokns/", "/console/operations/tokens"),
    ("/console/tokens", "/console/operations/tokens"),
    ("/console/referense", "/console/reference"),
    ("/console/tables/shop/wide/setings", "/console/tables/shop/wide/settings"),
    ("/console/table/shop/a%20b/rows", "/console/tables/shop/a%20b/rows"),
    ("/console/exampels/parcels", "/console/examples/parcels"),
]


def test_a_page_that_is_not_there_leads_to_the_nearest(browser: Browser) -> None:
    for path, near in NEAREST:
        answer = browser.get(path)
        assert answer.status_code == 404, path
        assert f'Did you mean <a href="{near}">{near}</a>?' in answer.text, path


@pytest.mark.parametrize("path", ["/console/xyz", "/console/tables/shop/wide/xyz", f"/console/{'rows' * 1000}"])
def test_a_page_that_is_like_none_leads_to_no_other(browser: Browser, path: str) -> None:
    answer = browser.get(path)
    assert answer.status_code == 404
    assert "Did you mean" not in answer.text


def test_parts_of_pages_are_no_pages_to_go_to() -> None:
    assert {page.path for page in CLOSED if page.method == "GET" and not page.whole} == FRAGMENTS


def test_chromium_walks_every_page_that_is_shown() -> None:
    whole = [page for page in CLOSED if page.method == "GET" and page.path not in FRAGMENTS]
    paths = [path.partition("?")[0] for path in SHOWN]
    assert [page.path for page in whole if not any(compile_path(page.path)[0].match(path) for path in paths)] == []
