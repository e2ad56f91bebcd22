"""Signing in: who comes in, how long, and what no site can make a browser do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.console.site.cookies import form_token
from app.core.access import Role
from app.http.parts import Parts
from app.main import create_app
from app.services.access.tokens import create_token
from app.settings import Settings
from tests.api.conftest import LOOPBACK
from tests.console.conftest import Browser, SignedIn, words

WRONG = "kf_wrong"
OWN = {"Origin": LOOPBACK, "Sec-Fetch-Site": "same-origin"}
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


def parts_of(app: FastAPI) -> Parts:
    parts: Parts = app.state.parts
    return parts


@pytest.fixture
def token(app: FastAPI, client: TestClient) -> str:
    return create_token(parts_of(app).database, "boss")


def test_without_tokens_nobody_signs_in(browser: Browser) -> None:
    assert browser.get("/").status_code == 200
    assert "Sign out" not in browser.shown
    assert browser.get("/console/sign-in").headers["location"] == "/"


def test_a_page_leads_to_the_sign_in_and_back(browser: Browser, token: str) -> None:
    away = browser.get("/?q=shop")
    assert (away.status_code, away.headers["location"]) == (303, "/console/sign-in?next=%2F%3Fq%3Dshop")
    browser.get(away.headers["location"])
    back = browser.send("/console/sign-in", token=f" {token}\n", next="/?q=shop")
    assert (back.status_code, back.headers["location"]) == (303, "/?q=shop")
    assert "boss" in browser.text("/?q=shop")


@pytest.mark.parametrize(
    "onward", ["https://evil.example/", "//evil.example", "/\\evil.example", "/v1/config", "/x\r\nA: b"]
)
def test_the_sign_in_leads_nowhere_else(browser: Browser, token: str, onward: str) -> None:
    browser.get("/console/sign-in")
    assert browser.send("/console/sign-in", token=token, next=onward).headers["location"] == "/"


def test_the_cookie_is_for_this_service_and_no_script_and_does_not_hold_the_token(browser: Browser, token: str) -> None:
    cookie = browser.sign_in(token).headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"} <= set(cookie.split("; "))
    assert token not in cookie
    assert "Secure" not in cookie


def test_under_https_the_cookie_is_secure_and_of_this_host_alone(app: FastAPI, token: str) -> None:
    https = Browser(TestClient(app, "https://keyfold.example"))
    page = https.get("/console/sign-in")
    assert re.match(
        r"__Host-keyfold_443=visitor_[\w-]+; HttpOnly; Path=/; SameSite=strict; Secure", page.headers["set-cookie"]
    )
    other = Browser(TestClient(app, "https://keyfold.example:9443")).get("/console/sign-in")
    assert other.headers["set-cookie"].startswith("__Host-keyfold_9443=")


def test_who_signs_in_again_has_left_the_former_session(browser: Browser, token: str) -> None:
    browser.sign_in(token)
    former = {**browser.client.cookies}
    browser.client.cookies.clear()
    browser.client.cookies.update(former)
    browser.post("/console/sign-in", token=token, next="/", csrf=form_token(next(iter(former.values()))))
    assert browser.get("/").status_code == 200
    browser.client.cookies.clear()
    browser.client.cookies.update(former)
    assert browser.get("/").status_code == 303


def test_the_api_takes_no_session_for_a_token(browser: Browser, token: str) -> None:
    browser.sign_in(token)
    session = next(iter(browser.client.cookies.values()))
    asked = browser.client.post("/v1/tokens", json={"name": "mine"}, headers={"Authorization": f"Bearer {session}"})
    assert asked.status_code == 401
    assert "session" in asked.json()["detail"]


def test_sign_ins_count_among_the_requests_of_their_token(tmp_path: Path, sqlite_template: Path) -> None:
    (tmp_path / "catalog.sqlite").write_bytes(sqlite_template.read_bytes())
    app = create_app(Settings(KEYFOLD_DATA=tmp_path, workers=0, requests_per_minute=3))
    with TestClient(app, LOOPBACK) as client:
        token = create_token(parts_of(app).database, "boss")
        assert [Browser(client).sign_in(token).status_code for _ in range(4)] == [303, 303, 303, 429]


def test_without_the_console_there_are_no_pages(tmp_path: Path, sqlite_template: Path) -> None:
    (tmp_path / "catalog.sqlite").write_bytes(sqlite_template.read_bytes())
    app = create_app(Settings(KEYFOLD_DATA=tmp_path, workers=0, console=False))
    with TestClient(app, LOOPBACK) as client:
        paths = ("/", "/console/sign-in", "/console/assets/console.css")
        assert [client.get(path).status_code for path in paths] == [404] * 3
        assert client.head("/").status_code == 404  # as the page of the API looks for the console
        assert client.get("/v1/catalog/databases").status_code == 200
        assert client.post("/console/sign-in", content=b"x", headers=OWN).status_code == 404


def test_a_session_ends_with_sign_out_also_for_who_kept_the_cookie(browser: Browser, token: str) -> None:
    browser.sign_in(token)
    browser.get("/")
    kept = {**browser.client.cookies}
    assert browser.send("/console/sign-out").headers["location"] == "/console/sign-in"
    assert browser.get("/").status_code == 303
    browser.client.cookies.clear()
    browser.client.cookies.update(kept)
    assert browser.get("/").status_code == 303


def test_a_session_ends_with_its_token(app: FastAPI, signed_in: SignedIn) -> None:
    browser = signed_in(name="guest")
    assert browser.get("/").status_code == 200
    with parts_of(app).database.transaction() as repository:
        repository.tokens.revoke("guest")
    assert browser.get("/").status_code == 303
    part = browser.get("/console/tables", **{"HX-Request": "true"})
    assert (part.status_code, part.headers["hx-redirect"]) == (204, "/console/sign-in")


def test_a_session_of_one_token_does_not_end_with_another(app: FastAPI, signed_in: SignedIn) -> None:
    browser = signed_in(name="a.b")
    create_token(parts_of(app).database, "a_b")
    with parts_of(app).database.transaction() as repository:
        repository.tokens.revoke("a_b")
    assert browser.get("/").status_code == 200


def test_a_session_begins_no_other_and_is_in_no_list(app: FastAPI, browser: Browser, token: str) -> None:
    browser.sign_in(token)
    session = next(iter(browser.client.cookies.values()))
    listed = browser.client.get("/v1/tokens", headers={"Authorization": f"Bearer {token}"}).json()["tokens"]
    assert [one["name"] for one in listed] == ["boss"]
    other = Browser(browser.client)
    assert other.sign_in(session).status_code == 401


def test_a_wrong_token_is_reported_and_too_many_are_stopped(tmp_path: Path, sqlite_template: Path) -> None:
    (tmp_path / "catalog.sqlite").write_bytes(sqlite_template.read_bytes())
    app = create_app(Settings(KEYFOLD_DATA=tmp_path, workers=0, failures_per_minute=3))
    with TestClient(app, LOOPBACK) as client:
        right = create_token(parts_of(app).database, "boss")
        browser = Browser(client)
        statuses = [browser.sign_in(WRONG).status_code for _ in range(3)]
        assert "keyfold token create" in words(browser.shown)
        browser.get("/console/sign-in")
        last = browser.send("/console/sign-in", token=WRONG)
        assert (statuses, last.status_code) == ([401, 401, 401], 429)
        assert int(last.headers["retry-after"]) > 0
        assert browser.sign_in(right).status_code == 303


@pytest.mark.parametrize(
    "headers", [{}, {"Origin": "https://evil.example"}, {"Origin": "null"}, {**OWN, "Sec-Fetch-Site": "cross-site"}]
)
def test_a_form_of_no_page_of_ours_changes_nothing(browser: Browser, token: str, headers: dict[str, str]) -> None:
    browser.sign_in(token)
    browser.get("/")
    csrf = re.search(r'name="csrf" value="(\w+)"', browser.shown)
    assert csrf
    refused = browser.client.post("/console/sign-out", data={"csrf": csrf[1]}, headers=headers, follow_redirects=False)
    assert refused.status_code == 403
    assert browser.get("/").status_code == 200


@pytest.mark.parametrize("csrf", ["", "x", "0" * 64, "ä"])
def test_a_form_without_what_its_page_gave_changes_nothing(browser: Browser, token: str, csrf: str) -> None:
    browser.sign_in(token)
    refused = browser.post("/console/sign-out", csrf=csrf)
    assert (refused.status_code, "open the page again" in refused.text) == (403, True)
    assert browser.get("/").status_code == 200


def test_a_form_of_another_browser_is_not_taken(client: TestClient, token: str) -> None:
    first, second = Browser(client), Browser(client)
    first.get("/console/sign-in")
    stolen = re.search(r'name="csrf" value="(\w+)"', first.shown)
    client.cookies.clear()
    second.get("/console/sign-in")
    assert stolen
    assert second.post("/console/sign-in", csrf=stolen[1], token=token).status_code == 403


def test_a_link_of_another_site_opens_the_page_with_the_session(browser: Browser, token: str) -> None:
    browser.sign_in(token)
    kept = {**browser.client.cookies}
    browser.client.cookies.clear()  # which browsers leave out then
    first = browser.get("/?q=%3Cb%3E", **LINK)
    assert (first.status_code, 'content="0; url=/?q=%3Cb%3E"' in first.text) == (200, True)
    browser.client.cookies.update(kept)
    assert browser.get("/?q=x", **{**LINK, "Sec-Fetch-Site": "same-origin"}).status_code == 200


def test_what_is_no_visit_of_a_person_is_refused_from_elsewhere(browser: Browser) -> None:
    for dest in ("iframe", "image", "script"):
        assert browser.get("/", **{**LINK, "Sec-Fetch-Dest": dest}).status_code == 403
    assert browser.get("/", **LINK).status_code == 200
    assert browser.get("/", Host="evil.example").status_code == 403


def test_the_cookie_opens_no_route_of_the_api(browser: Browser, token: str) -> None:
    browser.sign_in(token)
    assert browser.client.get("/v1/config").status_code == 401


def test_nothing_but_the_sign_in_and_its_parts_is_open(app: FastAPI, browser: Browser, token: str) -> None:
    browser.get("/console/sign-in")
    for part in re.findall(r'(?:src|href)="([^"#]+)"', browser.shown):
        if part.startswith("/console/assets/"):
            assert browser.client.get(part).status_code == 200, part
    for path in (
        *("/", "/console/tables", "/console/assets/", "/console/assets/../visits.py", "/console/assets/visits.py"),
    ):
        assert browser.get(path).status_code in (303, 404), path


def test_who_has_not_signed_in_sends_a_token_and_no_more(browser: Browser, token: str) -> None:
    browser.get("/console/sign-in")
    large = browser.client.post("/console/sign-in", content=b"x" * (2**12 + 1), headers=OWN)
    assert large.status_code == 413


@pytest.mark.parametrize("body", [b"\xff", b"&".join(b"a=1" for _ in range(10_001))])
def test_a_form_that_is_none_is_reported(browser: Browser, token: str, body: bytes) -> None:
    browser.sign_in(token)
    assert browser.client.post("/console/playground", content=body, headers=OWN).status_code == 400


def test_roles_are_seen_and_kept(signed_in: SignedIn) -> None:
    browser = signed_in(Role.READ)
    assert "New table" not in browser.text("/")


def test_the_api_document_does_not_know_the_pages(client: TestClient) -> None:
    assert [path for path in client.get("/openapi.json").json()["paths"] if "console" in path or path == "/"] == []


def test_pages_may_run_nothing_but_the_files_of_this_service(browser: Browser) -> None:
    answer = browser.get("/")
    policy = dict(one.strip().split(" ", 1) for one in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src", "form-action")} == {"'self'"}
    assert not re.findall(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=|https?://(?!localhost)", answer.text)
    assert json.loads(re.search(r"content='(\{.*?\})'", answer.text)[1])["allowEval"] is False  # type: ignore[index]
