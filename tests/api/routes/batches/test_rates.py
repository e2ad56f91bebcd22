"""Too many failures of an address, too many requests of a token: 429, with when to come again."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from app.services.access.tokens import create_token
from tests.api.conftest import DATABASES, Opened, parts_of


def bearer_of(client: TestClient) -> dict[str, str]:
    """The header of a valid token."""
    return {"Authorization": f"Bearer {create_token(parts_of(client).database, 'ci')}"}


def test_failures_of_an_address_beyond_the_most_are_told_to_wait(opened: Opened) -> None:
    client = opened(failures_per_minute=3)
    bearer = bearer_of(client)
    wrong = {"Authorization": "Bearer kf_wrong"}
    assert [client.get(DATABASES, headers=headers).status_code for headers in (wrong, {}, wrong)] == [401] * 3
    refused = client.post(f"{DATABASES}/x/tables/x/batches", headers=wrong, content=b"{")
    assert (refused.status_code, refused.json()["errorCode"]) == (429, "too_many_requests")
    assert [fault["code"] for fault in refused.json()["errors"]] == ["too_many_failures"]
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert client.get("/healthz").status_code == 200
    assert client.get(DATABASES, headers=bearer).status_code == 200, "a valid token is not locked out by others"


@pytest.mark.slow(reason="asks hundreds of times")
def test_failures_may_be_left_without_a_bound(opened: Opened) -> None:
    client = opened(failures_per_minute=0)
    bearer_of(client)
    assert {client.get(DATABASES).status_code for _ in range(700)} == {401}


def test_a_token_that_is_used_too_often_is_told_to_wait_and_others_go_on(opened: Opened) -> None:
    client = opened(requests_per_minute=2)
    bearer = bearer_of(client)
    other = client.post("/v1/tokens", headers=bearer, json={"name": "other", "role": "read", "on": ["*"]}).json()
    assert client.get(DATABASES, headers=bearer).status_code == 200
    refused = client.get(DATABASES, headers=bearer)
    codes = [fault["code"] for fault in refused.json()["errors"]]
    assert (refused.status_code, codes) == (429, ["too_many_requests"])
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert client.get(DATABASES, headers={"Authorization": f"Bearer {other['token']}"}).status_code == 200
