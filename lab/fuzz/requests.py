"""Whole requests: every route, its path, query, headers and body, through all of the application but the socket."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from fastapi.testclient import TestClient

from app.api.shared.deps import Parts
from app.console.site.gate import is_page
from app.main import create_app
from app.services.access.tokens import create_token
from app.settings import Settings
from lab.fuzz.target import Run, Target
from tests.api.conftest import DATABASES, LOOPBACK, TABLES, new_table
from tests.services.builders import merge_staged

_OPTIONS = {"merge.max-staleness": "1 d", "changelog-producer": "input"}
_MADE_ANEW = 200  # requests that changed something
_BODY_TYPE = "application/problem+json"


@dataclass
class _Answer:
    """What the application sent."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    async def send(self, message: Any) -> None:
        """Takes ASGI's messages."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {
                name.decode("latin-1").lower(): value.decode("latin-1") for name, value in message["headers"]
            }
        else:
            self.body += message.get("body", b"")


def _scope(body: bytes) -> tuple[dict[str, Any], bytes]:
    """A request as it would come over the wire: method and target, headers, a blank line, the body."""
    head, _, rest = body.partition(b"\n\n")
    first, *others = head.split(b"\n")
    method, _, target = first.partition(b" ")
    path, _, query = (target or b"/").partition(b"?")
    named = [other.partition(b":")[::2] for other in others]
    headers = [(name.strip().lower(), _unhurried(name, value.strip())) for name, value in named]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method.decode("latin-1").upper(),
        "scheme": "http",
        "path": unquote(path.decode("latin-1"), "utf-8"),
        "raw_path": path,
        "root_path": "",
        "query_string": query,
        "headers": [(b"host", b"localhost"), *headers],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8080),
        "state": {},
    }
    return scope, rest


def _unhurried(name: bytes, value: bytes) -> bytes:
    """Nothing merges here, so that to wait for it would be no hang."""
    return re.sub(rb"\d+", b"0", value) if name.strip().lower() == b"prefer" else value


def _twice(name: str) -> str:
    """A name in a path of this client, which decodes paths once more than a server does."""
    return quote(quote(name, safe=""), safe="")


class _Service:
    """The application with a table of merged and staged rows, which is made again when requests have changed it."""

    def __init__(self, client: TestClient, parts: Parts) -> None:
        self.client, self.parts = client, parts
        self.changes = _MADE_ANEW
        self.tokens = count()

    def fill(self) -> None:
        """Leave one database, one table and a token for all: inputs make and revoke some."""
        secret = create_token(self.parts.database, f"fuzz{next(self.tokens)}")
        self.client.headers["Authorization"] = f"Bearer {secret}"
        for name in self.client.get(DATABASES).json()["databases"]:
            database = f"{DATABASES}/{_twice(name)}"
            for table in self.client.get(f"{database}/tables").json()["tables"]:
                self.client.delete(f"{database}/tables/{_twice(table)}").raise_for_status()
            self.client.delete(database).raise_for_status()
        self.client.post(DATABASES, json={"name": "shop"}).raise_for_status()
        created = self.client.post(TABLES, json=new_table(options=_OPTIONS)).raise_for_status().json()
        for number in range(2):
            records = [{"id": one, "note": f"row {one}"} for one in range(number, 9)]
            self.client.post(f"{TABLES}/wide/batches", json={"records": records}).raise_for_status()
            merge_staged(self.parts.database, self.parts.warehouse, created["id"])
        self.client.post(f"{TABLES}/wide/tags", json={"tagName": "v1"}).raise_for_status()
        self.client.post(f"{TABLES}/wide/batches", json={"records": [{"id": 7}]}).raise_for_status()
        self.changes = 0

    def run(self, body: bytes) -> None:
        """One request, and what holds of every answer."""
        if self.changes >= _MADE_ANEW or self.client.get(f"{TABLES}/wide/tags/v1").status_code != 200:
            self.fill()
        scope, sent = _scope(body)
        if all(name != b"authorization" for name, _ in scope["headers"]):
            scope["headers"].append((b"authorization", self.client.headers["Authorization"].encode()))
        answer = _Answer()
        messages = [{"type": "http.request", "body": sent, "more_body": False}]

        async def receive() -> Any:
            return messages.pop() if messages else {"type": "http.disconnect"}

        assert self.client.portal is not None
        self.client.portal.call(self.client.app, scope, receive, answer.send)
        self.changes += scope["method"] not in ("GET", "HEAD") and answer.status < 400
        check(answer, page=is_page(scope["path"]))


def check(answer: _Answer, *, page: bool) -> None:
    """An answer is none of a fault of ours; a refusal is a problem that says so, of a page of the console a page."""
    assert 200 <= answer.status < 500, (answer.status, answer.body[:500])
    if page:
        assert answer.status < 400 or answer.headers["content-type"] == "text/html; charset=utf-8", answer.headers
    elif answer.status >= 400 and answer.body:
        assert answer.headers["content-type"] == _BODY_TYPE, answer.headers
        problem = json.loads(answer.body)
        assert problem["status"] == answer.status
        assert all(fault["fix"] for fault in problem["errors"]), problem
    elif answer.headers.get("content-type") == "application/json" and answer.body:
        json.loads(answer.body)


@contextmanager
def service() -> Iterator[Run]:
    """What answers an input that is a request."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(KEYFOLD_DATA=Path(folder), workers=0, max_body_bytes=2**20)
        with TestClient(create_app(settings), LOOPBACK, raise_server_exceptions=False) as client:
            parts: Parts = client.app.state.parts
            yield _Service(client, parts).run


_PARAMETERS = "pageToken maxResults snapshot columns key filter limit after fromSnapshot format validateOnly exact"
_HEADERS = (
    *("Accept: text/event-stream", "Accept: application/vnd.apache.arrow.stream", "If-None-Match: *", "Host: evil"),
    *("Content-Encoding: gzip", "Content-Type: text/csv", "Range: bytes=0-1", "Idempotency-Key: ", "Last-Event-ID: "),
    *(
        "Authorization: Bearer kf_",
        "Origin: null",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding: chunked",
    ),
)
_TARGETS = ("PATCH ", "PUT ", "DELETE ", "POST ", "HEAD ", "OPTIONS ", "%2F", "%00", "%ff", "+", "&", "true", "merged")
_WORDS = (*(f"{one}=".encode() for one in _PARAMETERS.split()), *(one.encode() for one in (*_HEADERS, *_TARGETS)))
REQUESTS = {"requests": Target(service, (), _WORDS, mutations=150)}
