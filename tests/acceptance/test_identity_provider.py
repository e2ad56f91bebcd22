"""A service, and an identity provider that others wrote: somebody signs in there by authorization code with PKCE."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.service import Client, serving

CLIENT_ID, BACK = "keyfold", "http://127.0.0.1/back"


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    users = [{"sub": "ada", "groups": ["owners"]}, {"sub": "bob"}]
    reported = [word for user in users for word in ("--user-claims", json.dumps(user))]
    command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port), *reported]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as provider:
        try:
            yield _answering(f"http://127.0.0.1:{port}")
        finally:
            provider.terminate()


def _answering(issuer: str) -> str:
    deadline = time.monotonic() + 60
    while True:
        try:
            httpx.get(f"{issuer}/.well-known/openid-configuration", trust_env=False).raise_for_status()
        except httpx.HTTPError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return issuer


@pytest.fixture(scope="module")
def client(issuer: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    grants = [{"role": "admin", "on": ["*"], "claim": "groups", "value": "owners"}, {"role": "read", "on": ["shop.*"]}]
    settings = {"oidc_issuer": issuer, "oidc_audience": CLIENT_ID, "oidc_grants": json.dumps(grants)}
    settings["oidc_client_secret"] = "any"  # noqa: S105  # the provider takes any
    with serving(tmp_path_factory.mktemp("service"), workers="0", **settings) as (_, opened):
        yield opened


def signed_in(issuer: str, subject: str) -> str:
    """The token that the provider gives to who signs in as ``subject``."""
    with httpx.Client(trust_env=False) as web:
        reported = web.get(f"{issuer}/.well-known/openid-configuration").raise_for_status().json()
        verifier = secrets.token_urlsafe(48)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        asked = {"client_id": CLIENT_ID, "redirect_uri": BACK, "response_type": "code", "scope": "openid groups"}
        asked |= {"code_challenge": challenge, "code_challenge_method": "S256", "state": "x"}
        answer = web.post(reported["authorization_endpoint"], params=asked, data={"sub": subject})
        [code] = parse_qs(urlsplit(answer.headers["location"]).query)["code"]
        body = {"grant_type": "authorization_code", "code": code, "redirect_uri": BACK, "code_verifier": verifier}
        given = web.post(reported["token_endpoint"], data=body, auth=(CLIENT_ID, "any"))
        return str(given.raise_for_status().json()["id_token"])


def test_who_signed_in_at_the_provider_may_what_the_claims_say(issuer: str, client: Client) -> None:
    ada, bob = ({"Authorization": f"Bearer {signed_in(issuer, name)}"} for name in ("ada", "bob"))
    databases = "/v1/catalog/databases"
    assert client.get(databases).status_code == 401
    assert client.post(databases, json={"name": "shop"}, headers=bob).status_code == 403
    assert client.post(databases, json={"name": "shop"}, headers=ada).status_code == 200
    assert client.get(databases, headers=bob).json()["databases"] == ["shop"]


def test_a_token_of_another_client_of_the_provider_is_refused(issuer: str, client: Client, tmp_path: Path) -> None:
    header, claims, signature = signed_in(issuer, "ada").split(".")
    reported = json.loads(base64.urlsafe_b64decode(claims + "=="))
    assert reported["aud"] in (CLIENT_ID, [CLIENT_ID])
    forged = base64.urlsafe_b64encode(json.dumps({**reported, "sub": "eve"}).encode()).decode().rstrip("=")
    refused = client.get("/v1/catalog/databases", headers={"Authorization": f"Bearer {header}.{forged}.{signature}"})
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (401, "unknown_token")


def test_a_person_signs_in_to_the_console_there(issuer: str, client: Client) -> None:
    with httpx.Client(base_url=client.base_url, trust_env=False) as browser:
        assert "Sign in with your account" in browser.get("/console/sign-in").text
        there = browser.get("/console/sign-in/provider", params={"next": "/console/operations"}).headers["location"]
        assert there.startswith(issuer)
        answer = httpx.post(there, data={"sub": "ada"}, trust_env=False)
        elsewhere = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        led = browser.get(answer.headers["location"], headers=elsewhere)
        assert (led.status_code, "0; url=/console/operations" in led.text) == (200, True)
        assert "oidc:ada" in browser.get("/console/operations").text
        assert browser.get(answer.headers["location"], headers=elsewhere).status_code == 401  # it counts once
