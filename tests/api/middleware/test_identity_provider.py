"""Bearers of an identity provider's tokens at the gate: what they may do, and what they are told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.main import create_app
from app.services.access.tokens import create_token
from app.settings import OidcGrant, Settings
from tests.api.conftest import DATABASES, LOOPBACK, TABLES, new_table
from tests.services.access.provider import AUDIENCE, Provider, providing

GRANTS = (
    OidcGrant(role="admin", on=("*",), claim="groups", value="owners"),
    OidcGrant(role="write", on=("shop.*",), claim="groups", value="loaders"),
    OidcGrant(role="read", on=("shop.wide",)),
)


@pytest.fixture
def provider() -> Iterator[Provider]:
    with providing() as opened:
        yield opened


@pytest.fixture
def client(provider: Provider, tmp_path: Path) -> Iterator[TestClient]:
    settings = Settings(
        KEYFOLD_DATA=tmp_path,
        workers=0,
        oidc_issuer=provider.issuer,
        oidc_audience=AUDIENCE,
        oidc_grants=GRANTS,
        audit_log=str(tmp_path / "audit.log"),
    )
    with TestClient(create_app(settings), LOOPBACK, raise_server_exceptions=False) as opened:
        yield opened


def shown(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_claims_say_what_a_bearer_may_do_and_records_say_who_sent_them(
    provider: Provider, client: TestClient, tmp_path: Path
) -> None:
    owner = shown(provider.token(groups=["owners"], sub="olga"))
    loader = shown(provider.token(groups=["loaders"], sub="lena"))
    reader = shown(provider.token(sub="rita"))
    assert client.post(DATABASES, json={"name": "shop"}, headers=owner).status_code == 200
    assert client.post(TABLES, json=new_table(), headers=loader).status_code == 403
    assert client.post(TABLES, json=new_table(), headers=owner).status_code == 200
    posted = client.post(f"{TABLES}/wide/batches", json={"records": [{"id": 1}]}, headers=loader)
    assert (posted.status_code, posted.json()["acceptedBy"]) == (202, "oidc:lena")
    assert client.get(f"{TABLES}/wide/rows/1", headers=reader).json()["id"] == 1
    refused = client.post(f"{TABLES}/wide/batches", json={"records": [{"id": 1}]}, headers=reader)
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (403, "missing_role")
    assert '"oidc:olga"' in (tmp_path / "audit.log").read_text()


def test_without_a_token_nothing_is_open_and_tokens_of_the_service_go_on(client: TestClient) -> None:
    assert client.get(DATABASES).status_code == 401
    token = create_token(client.app.state.parts.database, "ci")  # type: ignore[attr-defined]
    time.sleep(0.2)
    assert client.get(DATABASES, headers=shown(token)).status_code == 200


def test_a_token_that_is_not_valid_is_401_with_its_reason(provider: Provider, client: TestClient) -> None:
    expired = client.get(DATABASES, headers=shown(provider.token(exp=int(time.time()) - 60)))
    assert (expired.status_code, expired.json()["errors"][0]["code"]) == (401, "expired_token")
    other = client.get(DATABASES, headers=shown(provider.token(aud="others")))
    assert (other.status_code, other.json()["errors"][0]["code"]) == (401, "unknown_token")
    assert "oidc" not in other.text
    for nonsense in ("a.b.c", "..", f"{'x' * 5000}.y.z"):
        assert client.get(DATABASES, headers=shown(nonsense)).status_code == 401


def test_a_provider_that_does_not_answer_is_503_for_its_tokens_alone(provider: Provider, client: TestClient) -> None:
    provider.answers = False
    answer = client.get(DATABASES, headers=shown(provider.token(groups=["owners"])))
    assert (answer.status_code, "cannot be reached" in answer.json()["detail"]) == (503, True)
    token = create_token(client.app.state.parts.database, "ci")  # type: ignore[attr-defined]
    time.sleep(0.2)
    assert client.get(DATABASES, headers=shown(token)).status_code == 200
