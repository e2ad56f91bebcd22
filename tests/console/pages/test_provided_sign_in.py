"""Signing in to the console at an identity provider, and every way in which somebody else might."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi.testclient import TestClient

from app.main import create_app
from app.settings import OidcGrant, Settings
from tests.api.conftest import LOOPBACK
from tests.console.conftest import Browser
from tests.services.access.provider import AUDIENCE, Provider, providing

GRANTS = (OidcGrant(role="admin", on=("*",), claim="groups", value="owners"),)
CROSS = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.fixture
def provider() -> Iterator[Provider]:
    with providing() as opened:
        yield opened


@pytest.fixture
def browser(provider: Provider, tmp_path: Path) -> Iterator[Browser]:
    chosen = {"oidc_issuer": provider.issuer, "oidc_audience": AUDIENCE, "oidc_grants": GRANTS}
    settings = Settings(KEYFOLD_DATA=tmp_path, workers=0, audit_log=str(tmp_path / "audit.log"), **chosen)
    with TestClient(create_app(settings), LOOPBACK, raise_server_exceptions=False) as client:
        yield Browser(client)


def begun(browser: Browser, onward: str = "/console/operations") -> dict[str, str]:
    """What the provider is asked for, once the browser goes there."""
    page = browser.get("/console/sign-in").text
    assert "Sign in with your account" in page
    answer = browser.client.get("/console/sign-in/provider", params={"next": onward}, follow_redirects=False)
    assert answer.status_code == 303
    return {name: value for name, [value] in parse_qs(urlsplit(answer.headers["location"]).query).items()}


def back(browser: Browser, **params: str) -> Any:
    return browser.client.get("/console/sign-in/back", params=params, headers=CROSS, follow_redirects=False)


def signed_in(provider: Provider, browser: Browser, **claims: Any) -> Any:
    asked = begun(browser)
    provider.logins["c1"] = {"groups": ["owners"], "nonce": asked["nonce"], **claims}
    return back(browser, code="c1", state=asked["state"])


def test_who_signs_in_there_is_let_in_here_and_led_on(provider: Provider, browser: Browser, tmp_path: Path) -> None:
    asked = begun(browser)
    assert (asked["client_id"], asked["code_challenge_method"], asked["response_type"]) == (AUDIENCE, "S256", "code")
    assert asked["redirect_uri"] == f"{LOOPBACK}/console/sign-in/back"
    provider.logins["c1"] = {"groups": ["owners"], "nonce": asked["nonce"], "sub": "ada"}
    answer = back(browser, code="c1", state=asked["state"])
    assert answer.status_code == 200
    assert unescape(re.findall(r'content="0; url=([^"]+)"', answer.text)[0]) == "/console/operations"
    assert "SameSite=strict" in answer.headers["set-cookie"]
    assert provider.sent[-1]["code_verifier"] not in asked.values()
    text = browser.text("/console/operations")
    assert "oidc:ada" in text
    assert '"signIn"' in (tmp_path / "audit.log").read_text()
    assert "eyJ" not in (tmp_path / "audit.log").read_text()
    assert browser.send("/console/sign-out").status_code == 303
    assert browser.get("/console/operations").headers["location"].startswith("/console/sign-in")


@pytest.mark.parametrize("claims", [{"nonce": "another"}, {"nonce": None}, {"aud": "others"}], ids=str)
def test_a_token_of_another_login_lets_nobody_in(provider: Provider, browser: Browser, claims: dict[str, Any]) -> None:
    refused = signed_in(provider, browser, **claims)
    assert (refused.status_code, 'role="alert"' in refused.text) == (401, True)
    assert browser.get("/").headers["location"].startswith("/console/sign-in")


def test_claims_of_no_entry_are_403_and_said(provider: Provider, browser: Browser) -> None:
    refused = signed_in(provider, browser, groups=["staff"])
    assert (refused.status_code, "KEYFOLD_OIDC_GRANTS" in refused.text) == (403, True)
    assert browser.get("/").headers["location"].startswith("/console/sign-in")


def test_only_the_browser_that_began_a_login_ends_it_and_once(provider: Provider, browser: Browser) -> None:
    asked = begun(browser)
    provider.logins["c1"] = {"groups": ["owners"], "nonce": asked["nonce"]}
    assert back(browser, code="c1", state="x" * 43).status_code == 401
    assert "c1" in provider.logins  # the code was never sent
    assert back(browser, code="c1", state=asked["state"]).status_code == 401  # the first answer ended the login
    asked = begun(browser)
    provider.logins["c2"] = {"groups": ["owners"], "nonce": asked["nonce"]}
    browser.client.cookies.clear()
    assert back(browser, code="c2", state=asked["state"]).status_code == 401
    assert browser.get("/").headers["location"].startswith("/console/sign-in")


def test_what_the_provider_says_is_text(browser: Browser) -> None:
    asked = begun(browser)
    refused = back(browser, state=asked["state"], error="<b>access_denied")
    assert (refused.status_code, "&lt;b&gt;access_denied" in refused.text) == (401, True)


def test_nobody_is_led_elsewhere(provider: Provider, browser: Browser) -> None:
    for elsewhere in ("https://evil.example/", "//evil.example", "/v1/tokens", "/console\\evil", "/console/sign-in"):
        asked = begun(browser, elsewhere)
        provider.logins["c1"] = {"groups": ["owners"], "nonce": asked["nonce"]}
        answer = back(browser, code="c1", state=asked["state"])
        assert re.findall(r'content="0; url=([^"]+)"', answer.text) == ["/"]
        browser.client.cookies.clear()


def test_a_provider_that_does_not_answer_is_said(provider: Provider, browser: Browser) -> None:
    provider.answers = False
    answer = browser.get("/console/sign-in/provider")
    assert (answer.status_code, provider.issuer in answer.text) == (503, True)


def test_two_subjects_are_never_one_session_name(provider: Provider, browser: Browser) -> None:
    assert signed_in(provider, browser, sub="a~b").status_code == 200
    assert "oidc:a%7Eb" in browser.text("/console/operations")
