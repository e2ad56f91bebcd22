"""Signed requests, as Standard Webhooks says: who signed, when, and what; the captured one is of a real Debezium."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.middleware import signed as middleware
from app.core.access import Role
from app.main import create_app
from app.services.access.tokens import Wish, make_token
from app.services.access.webhooks import Signed
from app.settings import Settings
from tests.api.conftest import DATABASES, LOOPBACK, TABLES
from tests.api.routes.operating.test_signing_in import captured

URL = f"{TABLES}/wide/batches"
BODY = json.dumps({"records": [{"id": 1, "note": "a"}]}).encode()


def made(app: FastAPI, name: str = "debezium", role: Role = Role.WRITE, on: str = "shop.*", **wish: Any) -> str:
    with app.state.parts.database.transaction() as repository:
        return make_token(repository, Wish(name, role, [on], webhook=True, **wish)).secret


def signature(secret: str, body: bytes, identity: str = "msg_1", at: int | None = None) -> dict[str, str]:
    seconds = str(int(time.time()) if at is None else at)
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"{identity}.{seconds}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": identity,
        "webhook-timestamp": seconds,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
        "Content-Type": "application/json",
    }


def code_of(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["errors"][0]["code"]


def test_the_signature_of_a_real_debezium_is_right() -> None:
    request = captured("31")
    secret = "whsec_" + base64.b64encode(b"0123456789abcdef" * 2).decode()
    signed = Signed.from_headers(dict(request["headers"]))
    assert signed is not None
    assert signed.is_by(secret, request["body"].encode())
    assert not signed.is_by(secret, request["body"].encode() + b" ")
    assert not signed.is_by(
        "whsec_" + base64.b64encode(b"another one, of 32 bytes as well").decode(), request["body"].encode()
    )


def test_a_signed_request_is_its_tokens_and_its_id_the_idempotency_key(wide: TestClient, app: FastAPI) -> None:
    secret = made(app)
    first, again = (wide.post(URL, content=BODY, headers=signature(secret, BODY)) for _ in range(2))
    assert first.status_code == 202, first.text
    assert (first.json()["acceptedBy"], first.json()["idempotencyKey"]) == ("debezium", "msg_1")
    assert (again.json()["id"], again.headers["Idempotency-Replayed"]) == (first.json()["id"], "true")
    named = wide.post(URL, content=BODY, headers=signature(secret, BODY, "msg_2") | {"Idempotency-Key": "mine"})
    assert named.json()["idempotencyKey"] == "mine"


def test_its_id_is_that_of_a_request_for_many_tables_too(wide: TestClient, app: FastAPI) -> None:
    body = json.dumps({"tables": {"wide": {"records": [{"id": 1, "note": "a"}]}}}).encode()
    answer = wide.post(f"{DATABASES}/shop/batches", content=body, headers=signature(made(app), body))
    assert answer.json()["batches"][0]["idempotencyKey"] == "msg_1"


def test_what_was_changed_after_it_was_signed_is_refused(wide: TestClient, app: FastAPI) -> None:
    right = signature(made(app), BODY)
    for changed in (
        {"webhook-id": "msg_2"},
        {"webhook-timestamp": str(int(time.time()) - 1)},
        {"webhook-signature": "v1,AAAA"},
        {"webhook-signature": "v2," + right["webhook-signature"][3:]},
        {"webhook-signature": "v1,not base64"},
        {"webhook-id": ""},
        {"webhook-timestamp": "soon"},
        {"webhook-timestamp": "9" * 400},
    ):
        assert code_of(wide.post(URL, content=BODY, headers=right | changed)) == (401, "wrong_signature"), changed
    assert code_of(wide.post(URL, content=BODY.replace(b"a", b"b"), headers=right)) == (401, "wrong_signature")
    both = {"webhook-signature": f"v1,AAAA {right['webhook-signature']}"}  # while a sender changes its secret
    assert wide.post(URL, content=BODY, headers=right | both).status_code == 202


@pytest.mark.parametrize("off", [-400, 400])
def test_a_request_of_another_time_is_refused(wide: TestClient, app: FastAPI, off: int) -> None:
    old = signature(made(app), BODY, at=int(time.time()) + off)
    assert code_of(wide.post(URL, content=BODY, headers=old)) == (401, "wrong_signature")


def test_a_signer_may_do_what_its_token_is_for(wide: TestClient, app: FastAPI) -> None:
    reader, elsewhere = made(app, "reader", Role.READ), made(app, "elsewhere", on="other.*")
    assert code_of(wide.post(URL, content=BODY, headers=signature(reader, BODY))) == (403, "missing_role")
    assert code_of(wide.post(URL, content=BODY, headers=signature(elsewhere, BODY))) == (403, "missing_scope")
    assert wide.get(f"{TABLES}/wide", headers=signature(reader, b"")).status_code == 200


def test_a_revoked_or_expired_token_signs_nothing(wide: TestClient, app: FastAPI) -> None:
    secret = made(app)
    short = made(app, "short", expires="2s")
    assert wide.post(URL, content=BODY, headers=signature(short, BODY)).status_code == 202
    with app.state.parts.database.transaction() as repository:
        repository.tokens.revoke("debezium")
    assert code_of(wide.post(URL, content=BODY, headers=signature(secret, BODY))) == (401, "wrong_signature")
    time.sleep(2.1)
    assert code_of(wide.post(URL, content=BODY, headers=signature(short, BODY, "later"))) == (401, "expired_token")


def test_without_tokens_nobody_looks_at_signatures(wide: TestClient) -> None:
    headers = {"webhook-id": "a", "webhook-timestamp": "1", "webhook-signature": "v1,AAAA"}
    assert wide.post(URL, content=BODY, headers=headers | {"Content-Type": "application/json"}).status_code == 202
    assert wide.get("/healthz", headers=headers).status_code == 200


def test_the_secret_is_reported_once(wide: TestClient, app: FastAPI) -> None:
    boss = {"Authorization": f"Bearer {made(app, 'boss', Role.ADMIN, '*')}"}
    wish = {"name": "sink", "role": "write", "on": ["shop.*"], "webhook": True}
    answer = wide.post("/v1/tokens", json=wish, headers=boss)
    secret = answer.json()["token"]
    assert secret.startswith("whsec_")
    assert len(base64.b64decode(secret.removeprefix("whsec_"))) == 32
    assert secret not in wide.get("/v1/tokens", headers=boss).text
    assert wide.post(URL, content=BODY, headers=signature(secret, BODY)).json()["acceptedBy"] == "sink"
    with app.state.parts.database.reading() as repository:
        assert secret not in repr(repository.tokens.page())


def test_a_body_that_nobody_vouches_for_yet_is_bounded(wide: TestClient, app: FastAPI) -> None:
    made(app)
    headers = signature("whsec_AAAA", b"")
    assert wide.post(URL, content=b"x" * (middleware.MOST_SIGNED_BYTES + 1), headers=headers).status_code == 413


def test_wrong_signatures_are_counted_as_wrong_tokens_are(tmp_path: Path) -> None:
    app = create_app(Settings(KEYFOLD_DATA=tmp_path, workers=0, failures_per_minute=2))
    with TestClient(app, LOOPBACK) as client:
        made(app)
        wrong = signature("whsec_AAAA", b"")
        assert [client.get(DATABASES, headers=wrong).status_code for _ in range(4)] == [401, 401, 429, 429]


def test_pages_of_other_origins_are_refused_before_their_body_is_read(wide: TestClient, app: FastAPI) -> None:
    headers = signature(made(app), BODY) | {"Origin": "http://evil.example"}
    assert wide.post(URL, content=BODY, headers=headers).status_code == 403


def test_a_client_that_goes_in_the_middle_is_no_failure(tmp_path: Path) -> None:
    app = create_app(Settings(KEYFOLD_DATA=tmp_path, workers=0, failures_per_minute=1))
    with TestClient(app, LOOPBACK) as client:
        secret = made(app)
        headers = [(name.lower().encode(), value.encode()) for name, value in signature(secret, BODY).items()]
        messages = [{"type": "http.disconnect"}, {"type": "http.request", "body": BODY[:5], "more_body": True}]
        sent: list[Any] = []

        async def receive() -> Any:
            return messages.pop()

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": URL, "raw_path": URL.encode(), "query_string": b""}
        scope |= {"headers": [(b"host", b"localhost"), *headers], "scheme": "http", "client": ("testclient", 50000)}
        assert client.portal is not None
        client.portal.call(app, scope | {"http_version": "1.1", "server": ("127.0.0.1", 80)}, receive, send)
        assert (sent, messages) == ([], [])
        assert client.get(DATABASES, headers=signature("whsec_AAAA", b"")).status_code == 401
