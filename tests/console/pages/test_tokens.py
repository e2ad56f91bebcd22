"""Tokens and the audit log as pages: for who may do everything, and nobody else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.core.access import Role
from app.http.parts import Parts
from app.main import create_app
from app.services.access.tokens import create_token
from app.services.operating.audit_log import last_lines
from app.settings import Settings
from tests.api.conftest import LOOPBACK
from tests.console.conftest import Browser, SignedIn, words

TOKENS = "/console/operations/tokens"
AUDIT = "/console/operations/audit"
WISH = {"name": "till", "role": "write", "on": "shop.*\r\n\r\n hr.people ", "expires": "90d"}


def parts_of(app: FastAPI) -> Parts:
    parts: Parts = app.state.parts
    return parts


@pytest.fixture
def boss(signed_in: SignedIn) -> Browser:
    browser = signed_in(name="boss")
    browser.get(TOKENS)
    return browser


def secret_of(page: str) -> str:
    found = re.search(r"kf_[\w-]{43}", page)
    assert found, page
    return found[0]


def test_a_token_is_made_and_its_text_shown_once(boss: Browser) -> None:
    made = boss.send(TOKENS, **WISH)
    secret = secret_of(made.text)
    assert (made.status_code, made.headers["cache-control"]) == (200, "no-store")
    listed = boss.text(TOKENS)
    assert re.search(r"till write hr\.people, shop\.\* 0 s ago never \d{4}-", listed)
    assert "kf_" not in boss.shown
    allowed = boss.client.get("/v1/catalog/databases", headers={"Authorization": f"Bearer {secret}"})
    assert allowed.status_code == 200


FAULTS = [
    ({"name": "<b onx>"}, 400, "cannot be a token's name"),
    ({"role": "king"}, 400, "choose a role"),
    ({"on": "shop"}, 400, "did you mean shop.*?"),
    ({"on": ""}, 400, "1 to 100 patterns"),
    ({"expires": "yesterday"}, 400, "is not an expiry time"),
    ({"name": "boss"}, 409, "exists already"),
]


def test_a_wish_with_faults_is_reported_and_kept_in_the_form(boss: Browser) -> None:
    for wrong, status, reported in FAULTS:
        answer = boss.send(TOKENS, **{**WISH, **wrong})
        assert (answer.status_code, reported in words(answer.text)) == (status, True), wrong
        assert "<b onx" not in answer.text, wrong
        if "expires" not in wrong:
            assert 'value="90d"' in answer.text
        assert "till write" not in boss.text(TOKENS), wrong


def test_a_token_is_revoked_and_opens_nothing_any_more(app: FastAPI, boss: Browser) -> None:
    secret = create_token(parts_of(app).database, "guest")
    assert "guest" in boss.text(TOKENS)
    assert boss.send(f"{TOKENS}/revoke", name="guest").headers["location"] == TOKENS
    assert boss.client.get("/v1/config", headers={"Authorization": f"Bearer {secret}"}).status_code == 401
    assert "guest" not in boss.text(TOKENS)
    assert boss.send(f"{TOKENS}/revoke", name="guest").status_code == 404


def test_who_revokes_their_own_token_is_signed_out(boss: Browser) -> None:
    assert "boss yours" in boss.text(TOKENS)
    boss.send(f"{TOKENS}/revoke", name="boss")
    assert boss.get(TOKENS).headers["location"].startswith("/console/sign-in")


def test_the_first_token_closes_the_service_and_the_page_says_so_before(browser: Browser) -> None:
    assert "No token was ever made" in browser.text(TOKENS)
    made = browser.send(TOKENS, name="boss", role="admin", on="*", expires="")
    assert "From now on every request needs a token" in words(made.text)
    assert browser.get(TOKENS).status_code == 303
    assert browser.sign_in(secret_of(made.text)).status_code == 303
    assert "No token was ever made" not in browser.text(TOKENS)


@pytest.mark.parametrize(("role", "on"), [(Role.WRITE, "*"), (Role.READ, "*"), (Role.ADMIN, "shop.*")])
def test_who_is_no_admin_of_everything_is_refused(app: FastAPI, signed_in: SignedIn, role: Role, on: str) -> None:
    create_token(parts_of(app).database, "other")
    browser = signed_in(role, (on,))
    assert TOKENS not in browser.get("/").text
    assert [browser.get(path).status_code for path in (TOKENS, AUDIT)] == [403, 403]
    browser.get("/")
    assert browser.send(TOKENS, **WISH).status_code == 403
    browser.get("/")
    assert browser.send(f"{TOKENS}/revoke", name="other").status_code == 403
    with parts_of(app).database.reading() as repository:
        assert {token.name for token in repository.tokens.page()} == {"other", role.value}


def test_many_tokens_are_paged(app: FastAPI, boss: Browser) -> None:
    for number in range(101):
        create_token(parts_of(app).database, f"a{number:03}")
    boss.get(TOKENS)
    onward = re.search(r'href="(\?after=[^"]+)"', boss.shown)
    assert onward
    second = boss.text(f"{TOKENS}{onward[1]}")
    assert re.findall(r"a\d{3} admin", second) == ["a100 admin"]


@pytest.fixture
def audited(tmp_path: Path, sqlite_template: Path) -> Iterator[Browser]:
    """An admin's browser on a service that has an audit log."""
    (tmp_path / "catalog.sqlite").write_bytes(sqlite_template.read_bytes())
    app = create_app(Settings(KEYFOLD_DATA=tmp_path, workers=0, audit_log=str(tmp_path / "audit.log")))
    with TestClient(app, LOOPBACK) as client:
        browser = Browser(client)
        browser.sign_in(create_token(parts_of(app).database, "boss"))
        yield browser


def test_a_refused_sign_in_is_reported_with_its_reason(audited: Browser) -> None:
    Browser(TestClient(audited.client.app, LOOPBACK)).sign_in("kf_wrong")
    assert re.search(r'signIn – testclient refused 401 \{"errors": \["\w+_token"\]\}', audited.text(AUDIT))


def test_the_audit_log_is_shown_newest_first(audited: Browser) -> None:
    assert "signIn boss testclient" in audited.text(AUDIT)
    audited.get(TOKENS)
    secret = secret_of(audited.send(TOKENS, **WISH).text)
    audited.get(TOKENS)
    audited.send(f"{TOKENS}/revoke", name="till")
    text = audited.text(AUDIT)
    assert re.search(r"revokeToken boss testclient done 200 .* createToken boss testclient done 200 ", text)
    assert secret not in audited.shown


def test_without_an_audit_log_the_page_says_how_to_have_one(browser: Browser) -> None:
    assert "KEYFOLD_AUDIT_LOG=audit.log keyfold serve" in browser.text(AUDIT)


def test_the_last_lines_of_a_long_file_are_whole_and_what_is_none_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    lines = [json.dumps({"operation": f"o{number}", "pad": "x" * 1_000}) for number in range(1_000)]
    path.write_text("\n".join([*lines, "no json", "[1]", "\udcff".encode("utf-8", "replace").decode()]) + "\n")
    found = last_lines(str(path), 500)
    assert found[-1]["operation"] == "o999"
    assert 100 < len(found) < 500
    assert [line["operation"] for line in last_lines(str(path), 5)][-2:] == ["o998", "o999"]
    assert last_lines(str(tmp_path / "none"), 5) == []
