"""Digests of bodies and answers (RFC 9530)."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import anyio
import pytest
from fastapi.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from app.api.middleware import digested
from tests.api.conftest import TABLES

BATCHES = f"{TABLES}/wide/batches"
BODY = b'{"records": [{"id": 1}]}'


def digest(body: bytes, name: str = "sha-256") -> str:
    return f"{name}=:{base64.b64encode(hashlib.new(name.replace('-', ''), body).digest()).decode()}:"


def post(client: TestClient, *digests: str, body: bytes = BODY, **headers: str) -> Any:
    lines = [("Content-Digest", one) for one in digests]
    return client.post(BATCHES, content=body, headers=[("Content-Type", "application/json"), *lines, *headers.items()])


@pytest.mark.parametrize(
    "digests",
    [
        (digest(BODY),),
        (digest(BODY, "sha-512"),),
        (f"{digest(BODY)}, {digest(BODY, 'sha-512')}",),
        (digest(BODY), digest(BODY, "sha-512")),
        ("md5=:AAAA:", "unixsum=5"),  # no algorithm that a receiver must know
    ],
)
def test_a_body_that_is_what_its_digest_says_is_stored(wide: TestClient, digests: tuple[str, ...]) -> None:
    assert post(wide, *digests).status_code == 202


@pytest.mark.parametrize("body", [BODY + b" ", BODY[:-1], b""])
@pytest.mark.parametrize("name", ["sha-256", "sha-512"])
def test_a_body_that_was_altered_or_cut_is_refused(wide: TestClient, body: bytes, name: str) -> None:
    answer = post(wide, digest(BODY, name), body=body)
    reported = answer.json()
    assert (answer.status_code, [fault["code"] for fault in reported["errors"]]) == (400, ["wrong_digest"])
    assert "Connection" not in answer.headers  # the body has come whole: the connection is good for the next request
    assert wide.get(BATCHES).json()["batches"] == []


def test_a_read_without_a_body_has_the_digest_of_none(wide: TestClient) -> None:
    assert wide.get(BATCHES, headers={"Content-Digest": digest(b"")}).status_code == 200
    assert wide.get(BATCHES, headers={"Content-Digest": digest(BODY)}).status_code == 400


def test_one_right_digest_excuses_no_wrong_one(wide: TestClient) -> None:
    assert post(wide, f"{digest(BODY)}, {digest(b'', 'sha-512')}").status_code == 400


NO_DIGESTS = ["sha-256", "sha-256=1", "sha-256=:A", "sha-256=(1 2)", "", 'sha-256="x"']


def test_a_digest_that_is_none_is_refused(wide: TestClient) -> None:
    for header in NO_DIGESTS:
        answer = post(wide, header)
        assert answer.status_code == 400, header
        assert [fault["code"] for fault in answer.json()["errors"]] == ["bad_header"], header


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        ("application/x-ndjson", "identity"),
        ("application/x-ndjson", "gzip"),
        ("application/vnd.apache.arrow.stream", "identity"),
        ("application/vnd.apache.parquet", "identity"),
    ],
)
def test_a_scan_has_the_digest_of_what_goes_out(wide: TestClient, accept: str, coding: str) -> None:
    records = [{"id": number} for number in range(2000)]
    assert wide.post(BATCHES, json={"records": records}).status_code == 202
    headers = {"Accept": accept, "Accept-Encoding": coding, "Want-Content-Digest": "sha-256=3, sha-512=5"}
    with wide.stream("GET", f"{TABLES}/wide/rows:scan", params={"consistency": "latest"}, headers=headers) as answer:
        raw = b"".join(answer.iter_raw())
        assert answer.headers["Content-Digest"] == digest(raw, "sha-512")
        assert answer.headers.get("Content-Encoding", "identity") == coding
    plain = wide.get(f"{TABLES}/wide/rows:scan", params={"consistency": "latest"}, headers={"Accept": accept})
    assert "Content-Digest" not in plain.headers


def test_lookups_and_refusals_have_one_too(wide: TestClient) -> None:
    for path in (f"{TABLES}/wide", f"{TABLES}/wide/rows/7", f"{TABLES}/nothing"):
        answer = wide.get(path, headers={"Want-Content-Digest": "sha-256=1", "Accept-Encoding": "identity"})
        assert answer.headers["Content-Digest"] == digest(answer.content), path


@pytest.mark.parametrize("wanted", ["sha-256=0", "md5=10"])
def test_none_is_given_where_none_is_taken(wide: TestClient, wanted: str) -> None:
    assert "Content-Digest" not in wide.get(f"{TABLES}/wide", headers={"Want-Content-Digest": wanted}).headers


def test_a_wish_that_is_none_is_refused(wide: TestClient) -> None:
    answer = wide.get(f"{TABLES}/wide", headers={"Want-Content-Digest": "sha-256=:A"})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (400, "bad_header")


def test_what_is_too_large_to_be_held_goes_out_without(wide: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digested, "_MOST_BYTES", 1000)
    records = [{"id": number} for number in range(20_000)]
    assert wide.post(BATCHES, json={"records": records}).status_code == 202
    scan = f"{TABLES}/wide/rows:scan?consistency=latest"
    answer = wide.get(scan, headers={"Want-Content-Digest": "sha-256=1", "Accept-Encoding": "identity"})
    assert "Content-Digest" not in answer.headers
    assert answer.content == wide.get(scan, headers={"Accept-Encoding": "identity"}).content


def test_an_answer_that_fails_in_its_middle_is_seen_to_be_cut() -> None:
    """Without a digest, and without an end: as it would go out if nobody had asked for one."""
    sent: list[Message] = []

    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/csv")]})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        raise RuntimeError("a file is damaged")

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"want-content-digest", b"sha-256=1")]}
    with pytest.raises(RuntimeError):
        anyio.run(digested.Digested(failing), scope, receive, send)
    assert [one["type"] for one in sent] == ["http.response.start", "http.response.body"]
    assert (sent[1]["body"], sent[1]["more_body"]) == (b"begun", True)
    assert all(name != b"content-digest" for name, _ in sent[0]["headers"])
