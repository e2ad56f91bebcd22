"""What a follower of a changelog is sent while nothing happens, and when it cannot go on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from app.api.middleware.auth import check_again
from app.api.routes.snapshots.changelog import lines_of
from app.api.routes.snapshots.following import Following, events
from app.api.shared.deps import Parts
from app.core.access import Role
from app.core.errors import Forbidden
from app.services.access.tokens import create_token
from app.services.snapshots.changelogs import Position
from app.services.snapshots.heads import Heads
from tests.api.conftest import Create, Merge


@pytest.fixture
def parts(app: FastAPI, create: Create, merge: Merge) -> Parts:
    """What is open while a table has three snapshots, of which the first two have expired."""
    create(options={"changelog-producer": "lookup"})
    for note in "abc":
        merge({"id": 1, "note": note})
    opened: Parts = app.state.parts
    with opened.database.transaction() as repository:
        repository.snapshots.expire(repository.tables.get("shop", "wide").id, [3])
    return opened


async def may_read() -> None:
    """Of a follower that may."""


def followed(
    parts: Parts, start: Position, count: int, check_reader: Callable[[], Awaitable[None]] = may_read, **given: Any
) -> list[str]:
    """The first ``count`` pieces that a follower is sent."""
    with parts.database.reading() as repository:
        table = repository.tables.get("shop", "wide")

    async def pieces() -> list[str]:
        heads = Heads(parts.database, 0.01)
        following = Following(parts.database, parts.warehouse, table, heads, start, None, check_reader, **given)
        sent = events(Request({"type": "http", "path": "/followed", "method": "GET"}), following, lines_of)
        return [(await anext(sent)).decode() for _ in range(count)]

    return asyncio.run(pieces())


def test_comments_are_sent_while_nothing_changes(parts: Parts) -> None:
    sent = followed(parts, Position(4), 3, heartbeat_seconds=0.01)
    assert sent == [": follows\n\n", ": ping\n\n", ": ping\n\n"]


def test_changes_that_expired_meanwhile_are_an_error_event(parts: Parts) -> None:
    [_, sent] = followed(parts, Position(2), 2)
    name, data = sent.strip().split("\n")
    assert name == "event: error"
    problem = json.loads(data.removeprefix("data: "))
    assert (problem["status"], problem["errorCode"]) == (404, "snapshot_not_found")
    assert problem["instance"] == "/followed"


def test_changes_that_are_kept_are_sent_at_once(parts: Parts) -> None:
    [_, _, sent] = followed(parts, Position(3, 1), 3)
    assert sent == 'data: {"_kind":"+U","_snapshot":3,"id":1,"note":"c"}\nid: 4.0\n\n'


def test_an_event_names_the_schema_of_the_changes_after_it(parts: Parts, merge: Merge, client: TestClient) -> None:
    table = "/v1/catalog/databases/shop/tables/wide"
    added = {"action": "addColumn", "fieldNames": ["more"], "dataType": "INT"}
    client.post(table, json={"changes": [added]}).raise_for_status()
    merge({"id": 1, "more": 5})
    merge({"id": 1, "more": 6})
    sent = [piece.split("\n") for piece in followed(parts, Position(3), 6)[1:]]
    table_id = client.get(table).json()["id"]
    schemas = [json.loads(lines[1].removeprefix("data: ")) for lines in sent if lines[0] == "event: schema"]
    assert schemas == [{"id": table_id, "schemaId": number} for number in (0, 1)]
    assert [lines[0].split(":")[0] for lines in sent] == ["event", "data", "event", "data", "data"]
    for named in schemas:
        schema = client.get(f"{table}/schemas/{named['schemaId']}").json()
        assert {**schema, "schema": None} == {**named, "schema": None}
        names = {field["name"] for field in schema["schema"]["fields"]}
        assert ("more" in names) == (named["schemaId"] == 1)


def test_a_follower_whose_token_is_revoked_is_told_so_and_sent_no_more(parts: Parts) -> None:
    secret = create_token(parts.database, "till", Role.READ, ["shop.*"])
    create_token(parts.database, "other")
    headers = [(b"authorization", f"Bearer {secret}".encode())]
    app = SimpleNamespace(state=SimpleNamespace(parts=parts))
    request = Request({"type": "http", "path": "/followed", "method": "GET", "headers": headers, "app": app})
    asked = 0

    async def check_reader() -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            with parts.database.transaction() as repository:
                repository.tokens.revoke("till")
        await check_again(request, "shop", "wide")

    sent = followed(parts, Position(4), 3, check_reader, heartbeat_seconds=0.01)
    assert sent[:2] == [": follows\n\n", ": ping\n\n"]
    problem = json.loads(sent[2].partition("data: ")[2])
    assert (problem["status"], problem["errors"][0]["code"]) == (401, "unknown_token")


def test_who_may_not_read_the_table_is_no_reader(parts: Parts) -> None:
    secret = create_token(parts.database, "till", Role.READ, ["hr.*"])
    headers = [(b"authorization", f"Bearer {secret}".encode())]
    app = SimpleNamespace(state=SimpleNamespace(parts=parts))
    request = Request({"type": "http", "path": "/followed", "method": "GET", "headers": headers, "app": app})
    with pytest.raises(Forbidden):
        asyncio.run(check_again(request, "shop", "wide"))
