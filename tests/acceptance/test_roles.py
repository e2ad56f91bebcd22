"""Every route over a real port: without a token, with a wrong, an expired, a too weak and a foreign one."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlsplit

import pytest

from app.api.middleware.auth import OPEN_PATHS
from app.api.shared.needs import NEEDS, About
from app.catalog.database import CatalogDatabase
from app.core.access import Role
from app.services.access.tokens import create_token
from app.settings import Settings
from tests.service import Client, serving


@dataclass(frozen=True)
class Walked:
    """A service whose routes are walked, and tokens: by role, for the database ``x`` of all paths; and others."""

    client: Client
    tokens: dict[str, str]

    def refused(self, method: str, path: str, bearer: str | None) -> tuple[int, list[str]]:
        """(status, codes) of a request whose body never comes: who may not call is told without it."""
        target = urlsplit(str(self.client.base_url))
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Length: 1000"]
        lines += [f"Authorization: Bearer {bearer}"] if bearer else []
        with socket.create_connection((target.hostname, target.port), timeout=30) as connection:
            connection.sendall("\r\n".join([*lines, "Content-Type: application/json", "", ""]).encode())
            response = HTTPResponse(connection, method=method)
            response.begin()
            return response.status, _codes(response)


def _codes(response: HTTPResponse) -> list[str]:
    """The fault codes in an answer whose connection waits for a body."""
    text = b""
    while b'"errorCount"' not in text:
        text += response.read1()
    return re.findall(r'"code":"(\w+)"', text.decode())


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walked]:
    data = tmp_path_factory.mktemp("roles")
    database = CatalogDatabase(Settings(KEYFOLD_DATA=data).catalog_url)
    database.migrate()
    tokens: dict[str, str] = {role: create_token(database, role, role, ["x.*"]) for role in Role}
    tokens["expired"] = create_token(database, "expired", expires="1 ms")
    tokens["foreign"] = create_token(database, "foreign", on=["other.*", "x.other"])
    tokens["boss"] = create_token(database, "boss")
    database.close()
    with serving(data, workers="0") as (_, client):
        yield Walked(client, tokens)


def closed_operations(client: Client) -> list[tuple[str, str, str]]:
    """(operation, method, path) of every route that is not open, as the service itself documents them."""
    paths: dict[str, dict[str, Any]] = client.get("/openapi.json").json()["paths"]
    found = [
        (operation["operationId"], method.upper(), re.sub(r"{\w+}", "x", path))
        for path, methods in paths.items()
        for method, operation in methods.items()
        if path not in OPEN_PATHS
    ]
    assert len(found) > 40
    return found


@pytest.mark.parametrize(
    ("sent", "code"), [(None, "missing_token"), ("kf_wrong", "unknown_token"), ("expired", "expired_token")]
)
def test_nobody_calls_a_route_without_a_token_that_lives(walked: Walked, sent: str | None, code: str) -> None:
    bearer = walked.tokens.get(sent, sent) if sent else None
    for operation, method, path in closed_operations(walked.client):
        assert walked.refused(method, path, bearer) == (401, [code]), operation


@pytest.mark.parametrize("role", [Role.READ, Role.WRITE])
def test_a_role_that_is_not_enough_is_reported_before_the_body_comes(walked: Walked, role: Role) -> None:
    weaker = 0
    for operation, method, path in closed_operations(walked.client):
        need = NEEDS[operation]
        if need is not None and not role.includes(need.role):
            weaker += 1
            expected = ["missing_role"] + ["missing_scope"] * (need.about is About.SERVICE)
            assert walked.refused(method, path, walked.tokens[role]) == (403, expected), operation
    assert weaker > 10


def test_an_admin_of_other_tables_calls_no_route_of_this_one(walked: Walked) -> None:
    foreign = 0
    for operation, method, path in closed_operations(walked.client):
        need = NEEDS[operation]
        if need is not None and need.about in (About.TABLE, About.DATABASE, About.SERVICE):
            foreign += 1
            assert walked.refused(method, path, walked.tokens["foreign"]) == (403, ["missing_scope"]), operation
    assert foreign > 30


def test_who_has_what_it_needs_is_not_refused(walked: Walked) -> None:
    for operation, method, path in closed_operations(walked.client):
        need = NEEDS[operation]
        assert need is not None
        who = "boss" if need.about is About.SERVICE else need.role
        answer = walked.client.request(method, path, headers={"Authorization": f"Bearer {walked.tokens[who]}"}, json={})
        assert answer.status_code not in (401, 403, 500), (operation, answer.text)
