"""Who may call: tokens, foreign pages, and promise 6."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.deps import Parts
from app.catalog.database import CatalogDatabase
from app.main import create_app
from app.services.tokens import TokenGate, create_token, token_digest
from app.settings import Settings, is_loopback
from tests.api.conftest import DATABASES


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def catalog(app: FastAPI) -> CatalogDatabase:
    parts: Parts = app.state.parts
    return parts.database


@pytest.fixture
def token(app: FastAPI, client: TestClient) -> str:
    """A token; made before the first request, so that the gate knows of it."""
    return create_token(catalog(app), "ci")


def eventually(client: TestClient, status: int, **headers: str) -> None:
    """Returns when the catalog is answered with ``status``; what a gate remembers lasts for seconds."""
    deadline = time.monotonic() + 30
    while client.get(DATABASES, headers=headers).status_code != status:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_without_tokens_everybody_on_this_machine_may_call(client: TestClient) -> None:
    assert client.get(DATABASES).status_code == 200


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_with_a_token_its_bearer_may_call(client: TestClient, token: str, scheme: str) -> None:
    assert client.get(DATABASES, headers={"Authorization": f"{scheme} {token}"}).status_code == 200


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Bearer kf_wrong", "Basic {token}", "{token}", "Bearer {token}x", "\xff"]
)
def test_nobody_else_may_call(client: TestClient, token: str, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header.format(token=token).encode("latin-1")}
    answer = client.get(DATABASES, headers=headers)  # type: ignore[arg-type]  # httpx sends bytes as they are
    assert (answer.status_code, answer.json()["errorCode"]) == (401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_every_route_but_health_asks_for_the_token(client: TestClient, token: str) -> None:
    document: dict[str, Any] = client.get("/openapi.json").json()
    asked = [(path, method) for path, methods in document["paths"].items() for method in methods]
    assert len(asked) > 15
    statuses = {(path, method): client.request(method, path).status_code for path, method in asked}
    health = {("/healthz", "get"), ("/readyz", "get"), ("/metrics", "get")}
    assert {one for one, status in statuses.items() if status != 401} == health & set(asked)


def test_a_refused_request_changes_nothing(client: TestClient, token: str) -> None:
    assert client.post(DATABASES, json={"name": "shop"}).status_code == 401
    assert client.get(DATABASES, headers=bearer(token)).json()["databases"] == []


def test_the_first_token_closes_a_service_that_was_open(app: FastAPI, client: TestClient) -> None:
    assert client.get(DATABASES).status_code == 200
    created = create_token(catalog(app), "ci")
    eventually(client, 401)
    assert client.get(DATABASES, headers=bearer(created)).status_code == 200


def test_a_revoked_token_ends_within_seconds(app: FastAPI, client: TestClient, token: str) -> None:
    other = create_token(catalog(app), "other")
    assert client.get(DATABASES, headers=bearer(token)).status_code == 200
    with catalog(app).transaction() as repository:
        repository.revoke_token("ci")
    eventually(client, 401, **bearer(token))
    assert client.get(DATABASES, headers=bearer(other)).status_code == 200


def test_a_service_open_to_the_network_stays_closed_when_its_last_token_is_revoked(
    app: FastAPI, client: TestClient, token: str
) -> None:
    with catalog(app).transaction() as repository:
        repository.revoke_token("ci")
    host = Settings(KEYFOLD_DATA=Path("unused"), host="0.0.0.0").host  # noqa: S104  # nothing listens there
    app.state.parts = Parts(**{**vars(app.state.parts), "gate": gate_for(app, host)})
    assert client.get(DATABASES).status_code == 401
    assert client.get(DATABASES, headers=bearer(token)).status_code == 401


def gate_for(app: FastAPI, host: str) -> TokenGate:
    return TokenGate(catalog(app), required=not is_loopback(host))


def test_the_catalog_keeps_no_token_only_its_digest(app: FastAPI, client: TestClient, token: str) -> None:
    with catalog(app).reading() as repository:
        assert repository.find_token(token) is None
        assert repository.find_token(token_digest(token)) == "ci" or repository.find_token(token_digest(token))


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://testserver.evil.example", "http://testserver:81", "http://[", ""]
)
def test_a_page_of_another_host_may_not_call(client: TestClient, origin: str) -> None:
    answer = client.post(DATABASES, json={"name": "shop"}, headers={"Origin": origin})
    assert (answer.status_code, answer.json()["errorCode"]) == (401, "unauthorized")
    assert client.get(DATABASES).json()["databases"] == []


def test_a_page_of_the_service_itself_may_call(client: TestClient) -> None:
    assert client.get(DATABASES, headers={"Origin": "http://testserver"}).status_code == 200


def test_health_is_open_to_all(client: TestClient, token: str) -> None:
    for path in ("/healthz", "/readyz"):
        assert client.get(path, headers={"Origin": "https://evil.example"}).status_code == 200


# Promise 6, with the real program


def keyfold(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app.cli", *arguments, "--data", str(folder)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KEYFOLD_")}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.1.2.3", "example.org"])  # noqa: S104  # all are refused
def test_without_tokens_the_program_refuses_to_listen_beyond_this_machine(tmp_path: Path, host: str) -> None:
    ended = keyfold(tmp_path, "serve", "--host", host, "--port", "0")
    assert ended.returncode == 1
    assert "keyfold token create" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "listens" not in ended.stdout


def test_revoking_the_last_token_closes_the_network_again(tmp_path: Path) -> None:
    created = keyfold(tmp_path, "token", "create", "ci")
    assert created.stdout.startswith("kf_")
    assert keyfold(tmp_path, "token", "list").stdout.startswith("ci\t")
    assert keyfold(tmp_path, "token", "create", "ci").returncode == 1
    assert keyfold(tmp_path, "token", "revoke", "ci").returncode == 0
    assert "refusing to listen" in keyfold(tmp_path, "serve", "--host", "0.0.0.0", "--port", "0").stderr  # noqa: S104


@pytest.mark.parametrize("port", ["70000", "-1"])
def test_a_setting_that_cannot_be_is_told_in_a_line(tmp_path: Path, port: str) -> None:
    environment = os.environ | {"KEYFOLD_PORT": port}
    command = [sys.executable, "-m", "app.cli", "serve", "--data", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("keyfold: KEYFOLD_PORT: ")
    assert "Traceback" not in ended.stderr


@pytest.fixture
def reopened(tmp_path: Path) -> Iterator[TestClient]:
    with TestClient(create_app(Settings(KEYFOLD_DATA=tmp_path, workers=0))) as client:
        yield client


def test_a_token_made_by_the_program_opens_the_service(tmp_path: Path, reopened: TestClient) -> None:
    token = keyfold(tmp_path, "token", "create", "ci").stdout.strip()
    eventually(reopened, 401)
    assert reopened.get(DATABASES, headers=bearer(token)).status_code == 200
