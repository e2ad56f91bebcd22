"""The gate: tokens, and the list of open paths."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from getpass import getuser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anyio
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import ValidationError
from starlette.websockets import WebSocketDisconnect

from app.api.shared.deps import Parts
from app.catalog.database import CatalogDatabase
from app.main import create_app
from app.services.access.token_gate import TokenGate
from app.services.access.tokens import create_token, token_digest
from app.settings import Settings, is_loopback
from tests.api.conftest import DATABASES, LOOPBACK


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


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer:"])
def test_with_a_token_its_bearer_may_call(client: TestClient, token: str, scheme: str) -> None:
    assert client.get(DATABASES, headers={"Authorization": f"{scheme} {token}"}).status_code == 200


@pytest.mark.parametrize(
    ("header", "code"),
    [
        *((one, "missing_token") for one in (None, "", "Basic {token}", "{token}", "\xff", "Bearer", "Bearer ")),
        *((one, "unknown_token") for one in ("Bearer kf_wrong", "Bearer {token}x")),
    ],
)
def test_no_other_may_call(client: TestClient, token: str, header: str | None, code: str) -> None:
    headers = {} if header is None else {"Authorization": header.format(token=token).encode("latin-1")}
    answer = client.get(DATABASES, headers=headers)  # type: ignore[arg-type]  # httpx sends bytes as they are
    assert (answer.status_code, answer.json()["errorCode"]) == (401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"
    (fault,) = answer.json()["errors"]
    assert (fault["code"], "keyfold token create" in fault["fix"]) == (code, True)


def test_every_route_but_health_asks_for_the_token(client: TestClient, token: str) -> None:
    document: dict[str, Any] = client.get("/openapi.json").json()
    asked = [(path, method) for path, methods in document["paths"].items() for method in methods]
    assert len(asked) > 15
    statuses = {(path, method): client.request(method, path).status_code for path, method in asked}
    assert {path for (path, _), status in statuses.items() if status != 401} == {"/healthz", "/readyz"}


def test_a_refused_request_changes_nothing(client: TestClient, token: str) -> None:
    assert client.post(DATABASES, json={"name": "shop"}).status_code == 401
    assert client.get(DATABASES, headers=bearer(token)).json()["databases"] == []


def test_a_service_open_to_the_network_stays_closed_when_its_last_token_is_revoked(
    app: FastAPI, client: TestClient, token: str
) -> None:
    with catalog(app).transaction() as repository:
        repository.tokens.revoke("ci")
    host = Settings(KEYFOLD_DATA=Path("unused"), host="0.0.0.0").host  # noqa: S104  # nothing listens there
    app.state.parts = Parts(**{**vars(app.state.parts), "gate": gate_for(app, host)})
    assert client.get(DATABASES).status_code == 401
    assert client.get(DATABASES, headers=bearer(token)).status_code == 401


def gate_for(app: FastAPI, host: str) -> TokenGate:
    return TokenGate(catalog(app), required=not is_loopback(host))


def test_the_catalog_keeps_no_token_only_its_digest(app: FastAPI, client: TestClient, token: str) -> None:
    with catalog(app).reading() as repository:
        assert set(repository.tokens.by_digest()) == {token_digest(token)}


def test_a_new_token_of_a_closed_service_opens_it_at_once(app: FastAPI, client: TestClient, token: str) -> None:
    assert client.get(DATABASES).status_code == 401
    time.sleep(0.2)  # the gate looks again at most ten times a second
    assert client.get(DATABASES, headers=bearer(create_token(catalog(app), "new"))).status_code == 200


def test_revoking_the_last_token_does_not_open_the_service_again(app: FastAPI, client: TestClient, token: str) -> None:
    with catalog(app).transaction() as repository:
        repository.tokens.revoke("ci")
    eventually(client, 401, **bearer(token))
    refused = client.get(DATABASES)
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (401, "no_token_left")
    assert "make one with: keyfold token create NAME" in refused.json()["message"]
    with TestClient(create_app(app.state.parts.settings), LOOPBACK) as restarted:
        assert restarted.get(DATABASES).status_code == 401


def test_only_four_paths_are_open(app: FastAPI, client: TestClient, token: str) -> None:
    for path in ("/healthz", "/readyz", "/openapi.json", "/docs"):
        assert client.get(path, headers={"Origin": "https://evil.example", "Host": "evil.example"}).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        *("//healthz", "/healthz/..", "/healthz/../v1/config", "/healthz%2f..%2fv1/config", "/healthz%00"),
        *("/healthz;x", "/HEALTHZ", "/docs/", "/docs/oauth2-redirect", "/redoc", "/openapi.json/", "/.%2fhealthz"),
        *("/v1/../healthz", "/v1/%2e%2e/healthz", "/v1/config%3f/healthz", "/v1/config%23/docs", "/nothing"),
        *("/metrics", "/docs/main.py", "/docs/__init__.py", "/docs/swagger-ui.css/x"),
    ],
)
def test_what_is_not_on_the_list_is_closed_whether_there_is_a_route_or_not(app: FastAPI, token: str, path: str) -> None:
    assert status_of(app, path) == 401


@pytest.mark.parametrize("path", ["http://localhost/healthz", "healthz", "*", ""])
def test_targets_that_are_no_paths_are_closed(app: FastAPI, token: str, path: str) -> None:
    assert status_of(app, path) == 401


def status_of(app: FastAPI, target: str) -> int:
    """What the application answers to ``target`` as uvicorn hands it over: unchanged, but for the decoding."""
    answers: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        answers.append(message)

    scope = {"type": "http", "method": "GET", "scheme": "http", "http_version": "1.1", "root_path": ""}
    where = {"path": unquote(target), "raw_path": target.encode(), "query_string": b"", "headers": [(b"host", b"x")]}
    anyio.run(app, scope | where, receive, send)
    status: int = answers[0]["status"]
    return status


def test_a_websocket_is_closed(client: TestClient) -> None:
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/healthz"):
        pass


# Promise 6, with the real program


def keyfold(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app.cli", *arguments, "--data", str(folder)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KEYFOLD_")} | more
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.1.2.3", "example.org"])  # noqa: S104  # nothing listens there
def test_a_host_that_others_can_reach_needs_tokens(host: str) -> None:
    assert Settings(host=host).asks_for_tokens


@pytest.mark.slow(reason="starts processes")
def test_the_program_makes_lists_and_revokes_tokens_and_listens_to_the_network_with_one_only(tmp_path: Path) -> None:
    refused = keyfold(tmp_path, "serve", "--host", "", "--port", "0")
    assert (refused.returncode, "keyfold token create" in refused.stderr) == (1, True)
    assert "Traceback" not in refused.stderr
    assert "listens" not in refused.stdout
    wished = ("--role", "write", "--on", "shop.*", "--on", "hr.people", "--expires", "2999-01-31")
    made = keyfold(tmp_path, "token", "create", "ci", *wished, KEYFOLD_AUDIT_LOG=str(tmp_path / "audit"))
    assert made.stdout.startswith("kf_")
    log = (tmp_path / "audit").read_text()
    assert made.stdout.strip() not in log
    reported = {name: json.loads(log)[name] for name in ("operation", "name", "role", "user")}
    assert reported == {"operation": "createToken", "name": "ci", "role": "write", "user": getuser()}
    assert keyfold(tmp_path, "token", "create", "boss").returncode == 0
    head, *lines = (
        re.split(" {2,}", splitline.strip()) for splitline in keyfold(tmp_path, "token", "list").stdout.splitlines()
    )
    assert head == ["name", "role", "on", "created", "expires", "last used"]
    assert [[*line[:3], *line[4:]] for line in lines] == [
        ["boss", "admin", "*", "never", "never"],
        ["ci", "write", "hr.people shop.*", "2999-01-31T00:00:00.000+00:00", "never"],
    ]
    assert keyfold(tmp_path, "token", "create", "ci").returncode == 1
    unmade = keyfold(tmp_path, "token", "create", "other", "--on", "shop")
    assert (unmade.returncode, "did you mean shop.*?" in unmade.stderr) == (1, True)
    assert "Traceback" not in unmade.stderr
    assert [keyfold(tmp_path, "token", "revoke", name).returncode for name in ("ci", "boss")] == [0, 0]
    assert "refusing to listen" in keyfold(tmp_path, "serve", "--host", "0.0.0.0", "--port", "0").stderr  # noqa: S104


@pytest.mark.slow(reason="starts processes")
def test_a_setting_that_cannot_be_is_reported_in_a_line(tmp_path: Path) -> None:
    ended = keyfold(tmp_path, "serve", KEYFOLD_PORT="70000")
    assert ended.returncode == 1
    assert ended.stderr.startswith("keyfold: KEYFOLD_PORT: ")
    assert "Traceback" not in ended.stderr
    with pytest.raises(ValidationError, match="port"):
        Settings(port=-1)
