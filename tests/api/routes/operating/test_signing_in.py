"""Senders that cannot set a header get the token that they name: Debezium's login, OAuth2's client credentials."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.core.access import Role
from app.services.access.sessions import begin_session
from app.services.access.tokens import create_token
from tests.api.conftest import DATABASES, TABLES, Create, Opened, fields_of, parts_of
from tests.api.routes.batches.test_captured_events import ACCOUNTS, CAPTURED

LOGIN, RENEWAL, OAUTH = "/auth/authenticate", "/auth/refreshToken", "/auth/token"


@pytest.fixture
def token(app: FastAPI, client: TestClient) -> str:
    return create_token(app.state.parts.database, "till", Role.WRITE, ["shop.*"])


def captured(number: str) -> dict[str, Any]:
    [path] = CAPTURED.glob(f"{number}-*.json")
    request: dict[str, Any] = json.loads(path.read_text())["request"]
    return request


def logged_in(client: TestClient, password: str, username: str = "till", minutes: int = 60) -> Any:
    wish = {"token_expiry_in_minutes": minutes, "refresh_token_expiry_in_minutes": 1440}
    return client.post(LOGIN, json={"username": username, "password": password} | wish)


def test_debezium_logs_in_as_it_does_and_posts_with_what_it_is_given(
    create: Create, shop: TestClient, app: FastAPI
) -> None:
    fields = fields_of(**ACCOUNTS)
    create("accounts", fields=fields, primaryKeys=["email"], options={})
    token = create_token(app.state.parts.database, "till", Role.WRITE, ["shop.*"])
    login, post = captured("32"), captured("33")
    assert login["path"] == LOGIN
    answer = shop.post(LOGIN, content=login["body"].replace("kf_secret", token), headers=dict(login["headers"][-1:]))
    assert answer.status_code == 200, answer.text
    jwt = answer.json()["jwt"]
    headers = {
        name: value.replace("tok", jwt) for name, value in post["headers"] if name in ("Authorization", "content-type")
    }
    assert headers["Authorization"].startswith("Bearer: ")
    answer = shop.post(f"{TABLES}/accounts/batches?format=debezium-json", content=post["body"], headers=headers)
    assert (answer.status_code, answer.json()["acceptedBy"]) == (202, "till")


def test_a_login_says_how_long_it_lasts_in_milliseconds(client: TestClient, token: str) -> None:
    answer = logged_in(client, token)
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
    day = 24 * 3600 * 1000
    assert answer.json() == {
        "jwt": token,
        "jwt_refresh_token": token,
        "expires_in": 3_600_000,
        "refresh_token_expires_in": day,
    }
    renewed = client.post(RENEWAL, json={"jwt_refresh_token": token, "token_expiry_in_minutes": 5})
    assert (renewed.status_code, renewed.json()["expires_in"]) == (200, 300_000)


def test_no_longer_than_the_token_itself(client: TestClient, app: FastAPI, token: str) -> None:
    short = create_token(app.state.parts.database, "short", expires="10m")
    answer = logged_in(client, short, "short").json()
    assert 590_000 < answer["expires_in"] <= 600_000
    assert 590_000 < answer["refresh_token_expires_in"] <= 600_000
    answer = client.post(OAUTH, data={"grant_type": "client_credentials"}, auth=("short", short)).json()
    assert 590 < answer["expires_in"] <= 600


def test_a_revoked_token_opens_nothing(client: TestClient, app: FastAPI, token: str) -> None:
    create_token(app.state.parts.database, "other")
    assert logged_in(client, token).status_code == 200
    with app.state.parts.database.transaction() as repository:
        repository.tokens.revoke("till")
    assert logged_in(client, token).status_code == 401
    assert client.post(RENEWAL, json={"jwt_refresh_token": token}).status_code == 401


@pytest.mark.parametrize("body", ["form", "basic"])
def test_a_client_of_oauth_is_given_its_token(client: TestClient, token: str, body: str) -> None:
    form = {"grant_type": "client_credentials", "scope": "whatever"}
    if body == "form":
        answer = client.post(OAUTH, data=form | {"client_id": "till", "client_secret": token})
    else:
        answer = client.post(OAUTH, data=form, auth=("till", token))
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"access_token": token, "token_type": "Bearer", "expires_in": 3600}
    assert (
        client.get(DATABASES, headers={"Authorization": f"Bearer {answer.json()['access_token']}"}).status_code == 200
    )


def test_a_wrong_secret_or_name_is_refused(client: TestClient, token: str) -> None:
    for name, secret in (("till", "kf_wrong"), ("till", ""), ("other", token), ("", token)):
        assert logged_in(client, secret, name).status_code == 401, (name, secret)
        form = {"grant_type": "client_credentials", "client_id": name, "client_secret": secret}
        answer = client.post(OAUTH, data=form)
        assert answer.status_code == 401
        assert answer.json()["error"] == "invalid_client"
        assert token not in answer.text
    assert client.post(RENEWAL, json={"jwt_refresh_token": "kf_wrong"}).status_code == 401


def test_what_is_no_request_for_a_token_is_reported_what_to_send(client: TestClient, token: str) -> None:
    assert client.post(OAUTH, data={"grant_type": "password"}).json()["error"] == "unsupported_grant_type"
    assert client.post(OAUTH, data={"grant_type": "client_credentials"}).json()["error"] == "invalid_request"
    broken = client.post(OAUTH, data={"grant_type": "client_credentials"}, headers={"Authorization": "Basic !"})
    assert broken.status_code in (400, 401)
    assert client.post(OAUTH, content=b"\xff\xfe=%ff&grant_type=client_credentials").status_code == 400
    assert client.post(LOGIN, json={"username": "till"}).status_code == 400
    half = b'{"username": "till", "password": "\\ud800"}'
    assert client.post(LOGIN, content=half, headers={"Content-Type": "application/json"}).status_code in (400, 401)
    assert logged_in(client, token, minutes=0).status_code == 400
    assert client.post(LOGIN, content=b"x" * 5000).status_code == 413


def test_a_session_of_the_console_is_no_token(client: TestClient, app: FastAPI, token: str) -> None:
    session = begin_session(app.state.parts.database, token)
    assert logged_in(client, session.secret).status_code == 401


def test_pages_of_other_origins_sign_in_nobody(client: TestClient, token: str) -> None:
    form = {"grant_type": "client_credentials", "client_id": "till", "client_secret": token}
    assert client.post(OAUTH, data=form, headers={"Origin": "http://evil.example"}).status_code == 403


def test_where_no_token_is_needed_anything_is_given_back_on_this_machine(client: TestClient) -> None:
    assert logged_in(client, "whatever").json()["jwt"] == "whatever"
    assert client.get(DATABASES, headers={"Authorization": "Bearer: whatever"}).status_code == 200
    foreign = client.post(LOGIN, json={"username": "a", "password": "b"}, headers={"Host": "evil.example"})
    assert foreign.status_code == 403


def test_guesses_are_counted_as_those_of_tokens_are(opened: Opened) -> None:
    client = opened(failures_per_minute=3)
    create_token(parts_of(client).database, "till")
    statuses = [logged_in(client, "kf_wrong").status_code for _ in range(5)]
    assert statuses == [401, 401, 401, 429, 429]
