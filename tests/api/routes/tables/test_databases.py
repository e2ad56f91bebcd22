"""Databases over HTTP, as Paimon's clients call them."""

from __future__ import annotations

from urllib.parse import quote_plus

import pytest
from fastapi.testclient import TestClient

from app.api.shared.paimon_clients import CONFIG_OVERRIDES
from tests.api.conftest import DATABASES


def test_the_config_tells_clients_the_prefix_of_every_path(client: TestClient) -> None:
    response = client.get("/v1/config", params={"warehouse": "my+wh%2F"})
    body = response.json()
    assert (body["defaults"], body["overrides"]) == ({}, CONFIG_OVERRIDES)
    assert (CONFIG_OVERRIDES["prefix"], body["idempotencyKeyLifetime"]) == ("catalog", "P7D")


def test_a_created_database_is_shown_with_its_options_and_times(client: TestClient) -> None:
    created = client.post(DATABASES, json={"name": "shop", "options": {"comment": "orders"}, "unknown": 1})
    shown = client.get(f"{DATABASES}/shop")
    assert (created.status_code, shown.status_code) == (200, 200)
    assert shown.json() == created.json()
    body = shown.json()
    assert body["name"] == "shop"
    assert body["options"] == {"comment": "orders"}
    assert body["location"].startswith("file:///")
    assert (body["owner"], body["createdBy"], body["updatedBy"]) == ("", "", "")
    assert 1_700_000_000_000 < body["createdAt"] == body["updatedAt"] < 10_000_000_000_000


def test_a_body_without_content_type_and_with_null_options_is_accepted(client: TestClient) -> None:
    response = client.post(DATABASES, content=b'{"name": "shop", "options": null}')
    assert "content-type" not in response.request.headers
    assert response.status_code == 200
    assert client.get(f"{DATABASES}/shop").json()["options"] == {}


def test_a_second_database_of_the_same_name_is_refused(shop: TestClient) -> None:
    response = shop.post(DATABASES, json={"name": "shop"})
    assert response.status_code == 409
    assert response.json()["errorCode"] == "database_already_exists"
    assert (response.json()["resourceType"], response.json()["resourceName"]) == ("DATABASE", "shop")


ODD_NAMES = ["a", "a" * 255, "größe", "a b", "a+b", "50%", "a?b#c", "日本", "a:b", "~"]


def test_any_other_name_is_created_shown_and_dropped(client: TestClient) -> None:
    for name in ODD_NAMES:
        assert client.post(DATABASES, json={"name": name}).status_code == 200, name
        path = f"{DATABASES}/{quote_plus(name)}"  # form encoding, as Paimon's clients encode path segments
        assert client.get(path).json()["name"] == name, name
        assert client.delete(path).status_code == 200, name
        assert client.get(path).status_code == 404, name


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        (DATABASES, b'{"name": "other", "options": {"a": "\\ud800"}}', "/options/a"),
        (DATABASES, b'{"name": "other", "options": {"\\ud800": "a"}}', "/options/\ud800"),
        (f"{DATABASES}/shop", b'{"updates": {"a": "\\ud800"}}', "/updates/a"),
        (f"{DATABASES}/shop", b'{"removals": ["b", "\\ud800"]}', "/removals/1"),
    ],
)
def test_half_a_surrogate_pair_in_an_option_is_refused(shop: TestClient, path: str, body: bytes, pointer: str) -> None:
    answer = shop.post(path, content=body)
    assert answer.status_code == 400
    assert [(fault["pointer"], fault["code"]) for fault in answer.json()["errors"]] == [(pointer, "illegal_text")]
    assert shop.get(DATABASES).json()["databases"] == ["shop"]


def test_an_external_location_is_refused_by_name(shop: TestClient) -> None:
    created = shop.post(DATABASES, json={"name": "other", "options": {"location": "s3://mine"}})
    altered = shop.post(f"{DATABASES}/shop", json={"updates": {"location": "s3://mine"}})
    assert [created.status_code, altered.status_code] == [400, 400]
    assert created.json()["errors"][0]["pointer"] == "/options/location"
    assert altered.json()["errors"][0]["pointer"] == "/updates/location"


def test_a_name_pattern_is_a_like_pattern(client: TestClient) -> None:
    for name in ("abc", "a_c", "xyz"):
        client.post(DATABASES, json={"name": name})
    for pattern, names in {"a%": ["a_c", "abc"], "": ["a_c", "abc", "xyz"]}.items():
        assert client.get(DATABASES, params={"databaseNamePattern": pattern}).json()["databases"] == names
    assert client.get(DATABASES, params={"databaseNamePattern": "a\\"}).status_code == 400


def test_an_alter_tells_what_it_removed_set_and_missed(shop: TestClient) -> None:
    shop.post(f"{DATABASES}/shop", json={"removals": [], "updates": {"a": "1", "b": "2"}})
    response = shop.post(f"{DATABASES}/shop", json={"removals": ["a", "z", "a"], "updates": {"b": "3"}})
    assert response.json() == {"removed": ["a"], "updated": ["b"], "missing": ["z"]}
    assert shop.get(f"{DATABASES}/shop").json()["options"] == {"b": "3"}


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_missing_database_is_a_404_that_names_it(client: TestClient, method: str) -> None:
    response = client.request(method, f"{DATABASES}/nowhere", json={} if method == "POST" else None)
    body = response.json()
    assert (response.status_code, body["code"], body["errorCode"]) == (404, 404, "database_not_found")
    assert (body["resourceType"], body["resourceName"]) == ("DATABASE", "nowhere")
