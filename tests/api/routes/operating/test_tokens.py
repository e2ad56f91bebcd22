"""Tokens over HTTP: made, listed, revoked by an admin; the text is told once."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.services.access.tokens import create_token
from tests.api.conftest import DATABASES

TOKENS = "/v1/tokens"
TILL = {"name": "till", "role": "read", "on": ["shop.*"]}


@pytest.fixture
def admin(app: FastAPI, client: TestClient) -> TestClient:
    client.headers["Authorization"] = f"Bearer {create_token(app.state.parts.database, 'boss')}"
    return client


def faults(answer: Any) -> list[tuple[str, str]]:
    assert answer.status_code == 400, answer.text
    return [(fault["pointer"], fault["code"]) for fault in answer.json()["errors"]]


def test_a_token_is_reported_once_and_opens_what_it_is_for(admin: TestClient) -> None:
    made = admin.post(TOKENS, json={**TILL, "expires": "1h"})
    assert made.headers["cache-control"] == "no-store"
    reported = made.json()
    secret = reported.pop("token")
    assert reported["expiresAt"] - reported["createdAt"] == 3_600_000
    assert admin.get(TOKENS).json()["tokens"][1] == reported
    assert secret not in admin.get(TOKENS).text
    bearer = {"Authorization": f"Bearer {secret}"}
    assert admin.get(DATABASES, headers=bearer).status_code == 200
    assert admin.post(DATABASES, json={"name": "shop"}, headers=bearer).status_code == 403


def test_a_revoked_token_opens_nothing_at_once(admin: TestClient) -> None:
    bearer = {"Authorization": f"Bearer {admin.post(TOKENS, json=TILL).json()['token']}"}
    assert admin.get(DATABASES, headers=bearer).status_code == 200
    assert admin.delete(f"{TOKENS}/till").status_code == 200
    assert admin.get(DATABASES, headers=bearer).status_code == 401
    again = admin.delete(f"{TOKENS}/till")
    assert (again.status_code, again.json()["errorCode"]) == (404, "token_not_found")


def test_a_name_in_use_is_a_conflict(admin: TestClient) -> None:
    assert admin.post(TOKENS, json=TILL).status_code == 200
    twin = admin.post(TOKENS, json=TILL)
    assert (twin.status_code, twin.json()["errorCode"]) == (409, "token_already_exists")


def test_tokens_are_listed_by_pages(admin: TestClient) -> None:
    for name in ("a", "b"):
        admin.post(TOKENS, json={**TILL, "name": name})
    first = admin.get(TOKENS, params={"maxResults": "2"}).json()
    assert [token["name"] for token in first["tokens"]] == ["a", "b"]
    second = admin.get(TOKENS, params={"maxResults": "2", "pageToken": first["nextPageToken"]}).json()
    assert ([token["name"] for token in second["tokens"]], second["nextPageToken"]) == (["boss"], None)


def test_every_fault_of_a_wish_is_reported_and_nothing_made(admin: TestClient) -> None:
    wrong = {"name": "a/b", "role": "read", "on": ["shop", "*"], "expires": "soon"}
    assert faults(admin.post(TOKENS, json=wrong)) == [
        ("/name", "illegal_name"),
        ("/on/0", "illegal_scope"),
        ("/expires", "illegal_expiry"),
    ]
    assert faults(admin.post(TOKENS, json={**TILL, "role": "owner"})) == [("/role", "enum")]
    assert faults(admin.post(TOKENS, json={"name": "till"})) == [("/role", "missing"), ("/on", "missing")]
    assert [token["name"] for token in admin.get(TOKENS).json()["tokens"]] == ["boss"]


def test_the_first_token_made_over_http_closes_a_service_that_was_open(client: TestClient) -> None:
    made = client.post(TOKENS, json={"name": "boss", "role": "admin", "on": ["*"]}).json()
    assert client.get(DATABASES).status_code == 401
    assert client.get(DATABASES, headers={"Authorization": f"Bearer {made['token']}"}).status_code == 200
