"""The audit log: who changed what and who was refused, without secrets and values."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.shared.needs import NEEDS
from app.core.access import Role
from app.main import create_app
from app.services.access.tokens import create_token
from app.settings import Settings
from tests.api.conftest import DATABASES, LOOPBACK, TABLES, new_table
from tests.services.builders import merge_staged

VALUE = "a value of a row"


@dataclass
class Watched:
    """A service with an audit log, and clients of two tokens."""

    app: FastAPI
    client: TestClient
    log: Path
    tokens: dict[str, str] = field(default_factory=dict)

    def call(self, who: str | None, method: str, path: str, **sent: Any) -> Any:
        headers = {} if who is None else {"Authorization": f"Bearer {self.tokens.get(who, who)}"}
        return self.client.request(method, path, headers=headers, **sent)

    def lines(self) -> list[dict[str, Any]]:
        """What was written since this was last asked, without times and the address that all have."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        self.log.write_text("")
        assert all(line.pop("time").endswith("Z") for line in lines)
        assert all(line.pop("address") == "testclient" for line in lines)
        return lines


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    log = tmp_path / "logs" / "audit.jsonl"
    app = create_app(Settings(KEYFOLD_DATA=tmp_path / "data", workers=0, audit_log=str(log)))
    with TestClient(app, LOOPBACK, raise_server_exceptions=False) as client:
        catalog = app.state.parts.database
        tokens = {"boss": create_token(catalog, "boss")}
        tokens["writer"] = create_token(catalog, "writer", Role.WRITE, ["shop.*"])
        tokens["reader"] = create_token(catalog, "reader", Role.READ, ["shop.*"])
        watched = Watched(app, client, log, tokens)
        watched.call("boss", "POST", DATABASES, json={"name": "shop"})
        watched.call("boss", "POST", TABLES, json=new_table())
        watched.lines()
        yield watched


def test_changes_of_databases_tables_and_options_are_reported(watched: Watched) -> None:
    option = {"action": "setOption", "key": "merge.max-staleness", "value": "5 s"}
    added = {"action": "addColumn", "fieldNames": ["more"], "dataType": "INT", "comment": VALUE}
    renamed = {"source": {"database": "shop", "object": "wide"}, "destination": {"database": "shop", "object": "new"}}
    watched.call("boss", "POST", DATABASES, json={"name": "hr", "options": {"key": VALUE}})
    watched.call("boss", "POST", f"{DATABASES}/hr", json={"removals": ["key"], "updates": {"other": VALUE}})
    watched.call("boss", "POST", TABLES, json=new_table("more", options={"bucket": "1"}))
    watched.call("boss", "POST", f"{TABLES}/wide", json={"changes": [option, added]})
    watched.call("boss", "POST", "/v1/catalog/tables/rename", json=renamed)
    watched.call("boss", "DELETE", f"{TABLES}/new")
    watched.call("boss", "DELETE", f"{DATABASES}/hr")
    done = {"token": "boss", "outcome": "done", "status": 200}
    changes = [{"action": "setOption", "key": "merge.max-staleness"}, {"action": "addColumn", "fieldNames": ["more"]}]
    of_wide = {"database": "shop", "table": "wide"}
    assert watched.lines() == [
        {**done, "operation": "createDatabase", "database": "hr", "options": ["key"]},
        {**done, "operation": "alterDatabase", "database": "hr", "removed": ["key"], "updated": ["other"]},
        {**done, "operation": "createTable", "database": "shop", "table": "more", "options": ["bucket"]},
        {**done, "operation": "alterTable", **of_wide, "changes": changes},
        {**done, "operation": "renameTable", **of_wide, "to": {"database": "shop", "table": "new"}},
        {**done, "operation": "dropTable", "database": "shop", "table": "new"},
        {**done, "operation": "dropDatabase", "database": "hr", "tables": 0},
    ]


def test_rollbacks_tags_and_withdrawn_batches_are_reported(watched: Watched) -> None:
    parts = watched.app.state.parts
    posted = {"records": [{"id": 1, "note": VALUE}]}
    table = watched.call("boss", "GET", f"{TABLES}/wide").json()["id"]
    watched.call("boss", "POST", f"{TABLES}/wide/batches", json=posted)
    merge_staged(parts.database, parts.warehouse, table)
    batch = watched.call("boss", "POST", f"{TABLES}/wide/batches", json=posted).json()["id"]
    watched.call("boss", "DELETE", f"{TABLES}/wide/batches/{batch}")
    watched.call("boss", "POST", f"{TABLES}/wide/tags", json={"tagName": "v1"})
    watched.call("boss", "POST", f"{TABLES}/wide/rollback", json={"tag": "v1"})
    watched.call("boss", "DELETE", f"{TABLES}/wide/tags/v1")
    done = {"token": "boss", "database": "shop", "table": "wide", "outcome": "done", "status": 200}
    assert watched.lines() == [
        {**done, "operation": "deleteBatch", "batch": batch},
        {**done, "operation": "createTag", "tag": "v1", "snapshot": 1},
        {**done, "operation": "rollbackTable", "to": {"number": None, "tag": "v1"}},
        {**done, "operation": "deleteTag", "tag": "v1"},
    ]


def test_a_batch_says_who_sent_it(watched: Watched) -> None:
    for number, (method, path) in enumerate([("POST", "batches"), ("PUT", "rows/1"), ("DELETE", "rows/1")]):
        record = {"records": [{"id": 1, "note": VALUE}]} if path == "batches" else {"note": VALUE}
        sent = watched.call("boss" if number else "writer", method, f"{TABLES}/wide/{path}", json=record).json()
        assert sent["acceptedBy"] == ("boss" if number else "writer")
    listed = watched.call("boss", "GET", f"{TABLES}/wide/batches").json()["batches"]
    assert [one["acceptedBy"] for one in listed] == ["boss", "boss", "writer"]


def test_tokens_made_and_revoked_are_reported_without_their_text(watched: Watched) -> None:
    wish = {"name": "till", "role": "write", "on": ["shop.*"], "expires": "2999-01-31"}
    made = watched.call("boss", "POST", "/v1/tokens", json=wish).json()
    watched.call("boss", "DELETE", "/v1/tokens/till")
    assert made["token"] not in watched.log.read_text()
    done = {"token": "boss", "name": "till", "outcome": "done", "status": 200}
    assert watched.lines() == [
        {**done, "operation": "createToken", **wish, "expires": "2999-01-31T00:00:00+00:00"},
        {**done, "operation": "revokeToken"},
    ]


def test_who_was_refused_is_reported_with_what_was_missing_and_never_with_a_key(watched: Watched) -> None:
    watched.tokens["old"] = create_token(watched.app.state.parts.database, "old", expires="1 ms")
    rows = f"{TABLES}/wide/rows"
    watched.call(None, "GET", f"{rows}/{VALUE}")
    watched.call("kf_wrong", "GET", rows, params={"key": VALUE})
    watched.call("old", "POST", f"{TABLES}/wide/batches", json={"records": [{"note": VALUE}]})
    watched.call("reader", "PUT", f"{rows}/{VALUE}", json={"note": VALUE})
    watched.call("reader", "GET", f"{DATABASES}/hr/tables/people/rows", params={"key": VALUE})
    watched.call(None, "GET", f"/no/such/route/{VALUE}")
    watched.call("boss", "GET", DATABASES)
    text = watched.log.read_text()
    assert VALUE not in text
    assert not any(token in text for token in watched.tokens.values())
    of_wide = {"database": "shop", "table": "wide", "outcome": "refused"}
    of_people = {"database": "hr", "table": "people", "outcome": "refused"}
    assert watched.lines() == [
        {**of_wide, "operation": "getRowByPath", "status": 401, "errors": ["missing_token"]},
        {**of_wide, "operation": "getRow", "status": 401, "errors": ["unknown_token"]},
        {**of_wide, "operation": "postBatch", "token": "old", "status": 401, "errors": ["expired_token"]},
        {**of_wide, "operation": "putRowByPath", "token": "reader", "status": 403, "errors": ["missing_role"]},
        {**of_people, "operation": "getRow", "token": "reader", "status": 403, "errors": ["missing_scope"]},
        {"outcome": "refused", "status": 401, "errors": ["missing_token"]},
    ]


def test_what_changed_nothing_has_no_line(watched: Watched) -> None:
    watched.call("boss", "POST", TABLES, json=new_table())  # it exists
    watched.call("boss", "POST", TABLES, json=new_table("x"), params={"validateOnly": "true"})
    watched.call("boss", "POST", f"{TABLES}/wide", json={"changes": []}, params={"validateOnly": "true"})
    watched.call("boss", "DELETE", f"{TABLES}/nothing")
    watched.call("boss", "POST", f"{TABLES}/wide/batches", json={"records": [{"id": 1}]})
    assert watched.lines() == []


def test_the_log_is_its_owners_alone_and_may_be_moved_away(watched: Watched) -> None:
    assert stat.S_IMODE(watched.log.stat().st_mode) == 0o600
    watched.log.rename(watched.log.with_suffix(".1"))
    watched.call("boss", "DELETE", f"{TABLES}/wide")
    assert [line["operation"] for line in watched.lines()] == ["dropTable"]


def test_a_log_that_cannot_be_written_stops_no_request(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    watched.log.unlink()
    watched.log.mkdir()
    assert watched.call("boss", "DELETE", f"{TABLES}/wide").status_code == 200
    assert any('"operation":"dropTable"' in message for message in caplog.messages)


def test_every_change_of_a_database_table_or_token_is_audited() -> None:
    changing = {operation for operation, need in NEEDS.items() if need is not None and need.role is Role.ADMIN}
    audited = {operation for operation, need in NEEDS.items() if need is not None and need.audited}
    assert changing - {"listTokens"} <= audited
    of_writers = {"createTag", "deleteBatch", "retryBatch", "retrySetAsideEvents", "withdrawSetAsideEvent"}
    assert audited - changing == of_writers
