"""``T/rows:forget`` and ``T/forgettings`` over HTTP."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.shared.deps import Parts
from app.core.access import Role
from app.services.access.tokens import create_token
from app.services.shared.executor import MergeSite
from app.services.upkeep.forgotten_keys import Forgetter
from app.services.upkeep.sweeps import mark_run
from tests.api.conftest import TABLES, Create, Merge, Opened, fields_of, new_table, parts_of
from tests.services.executor import PythonExecutor

T = f"{TABLES}/wide"


def forget(app: FastAPI) -> int:
    parts: Parts = app.state.parts
    site = MergeSite(parts.database, parts.warehouse, PythonExecutor(), lease_seconds=60.0)
    return Forgetter(site, partial(mark_run, parts.warehouse)).forget()


def faults(answer: Any) -> tuple[int, str, list[tuple[str, str]]]:
    reported = answer.json()
    return (
        answer.status_code,
        reported["errorCode"],
        [(error["pointer"], error["code"]) for error in reported.get("errors", [])],
    )


def test_keys_are_forgotten_as_the_operation_says(wide: object, shop: TestClient, app: FastAPI, merge: Merge) -> None:
    merge({"id": 1, "note": "a"}, {"id": 2, "note": "b"})
    wish = {"keys": [{"id": 1}, {"id": "1"}, {"id": 404}], "reference": "ticket 7"}
    asked = shop.post(f"{T}/rows:forget", json=wish)
    assert asked.status_code == 202, asked.text
    one = asked.json()
    assert asked.headers["Location"] == f"{T}/forgettings/{one['id']}"
    assert (one["state"], one["keys"], one["untilBatch"], one["reference"]) == ("pending", 2, 1, "ticket 7")
    assert shop.get(asked.headers["Location"]).json() == one
    assert shop.get(f"{T}/rows?key=1").status_code == 200
    assert forget(app) == 1
    after = shop.get(asked.headers["Location"]).json()
    assert (after["state"], after["snapshotId"], after["rows"], after["records"]) == ("forgotten", 2, 1, 1)
    missing = shop.get(f"{T}/rows?key=1")
    assert (missing.status_code, "never written" in missing.json()["detail"]) == (404, True)
    assert shop.get(f"{T}/rows?key=2").json() == {"id": 2, "note": "b"}
    snapshot = shop.get(f"{T}/snapshots").json()["snapshots"][0]
    assert (snapshot["id"], snapshot["commitKind"]) == (2, "OVERWRITE")
    shop.post(f"{T}/batches", json={"records": [{"id": 1, "note": "anew"}]})
    explained = shop.get(f"{T}/rows:explain?key=1").json()
    assert [step["what"] for step in explained["steps"]] == ["forgetting", "record"]
    assert (explained["row"], explained["exact"]) == ({"id": 1, "note": "anew"}, True)
    of_another = shop.get(f"{T}/rows:explain?key=2").json()
    assert [step["what"] for step in of_another["steps"]] == ["record"]


def test_forgettings_are_listed_newest_first_a_page_at_a_time(wide: object, shop: TestClient) -> None:
    made = [shop.post(f"{T}/rows:forget", json={"keys": [{"id": n}]}).json()["id"] for n in range(3)]
    first = shop.get(f"{T}/forgettings?maxResults=2").json()
    rest = shop.get(f"{T}/forgettings?maxResults=2&pageToken={first['nextPageToken']}").json()
    assert [one["id"] for one in (*first["forgettings"], *rest["forgettings"])] == made[::-1]
    assert rest["nextPageToken"] is None
    other = shop.get(f"{T}/forgettings/{'0' * 32}")
    assert (other.status_code, other.json()["errorCode"]) == (404, "forgetting_not_found")
    assert shop.get(f"{T}/forgettings?pageToken=nowhere").status_code == 400


NO_KEYS: list[tuple[dict[str, Any], tuple[str, list[tuple[str, str]]]]] = [
    ({}, ("invalid_request", [("/keys", "missing")])),
    ({"keys": []}, ("invalid_request", [("/keys", "too_short")])),
    ({"keys": [{"id": 1}] * 1001}, ("invalid_request", [("/keys", "too_long")])),
    ({"keys": [7]}, ("invalid_request", [("/keys/0", "dict_type")])),
    (
        {"keys": [{"id": 1}, {"nr": 1}, {"id": "x"}, {"id": None}]},
        (
            "invalid_key",
            [("/keys/1/nr", "unknown_column"), ("/keys/2/id", "wrong_type"), ("/keys/3/id", "is_null")],
        ),
    ),
    ({"keys": [{"id": 1}], "reference": "a\u0000b"}, ("invalid_request", [("/reference", "illegal_name")])),
    ({"keys": [{"id": 1}], "reference": "x" * 2000}, ("invalid_request", [("/reference", "name_too_long")])),
]


def test_what_is_no_list_of_keys_is_refused_with_every_fault(wide: object, shop: TestClient) -> None:
    for body, expected in NO_KEYS:
        status, code, found = faults(shop.post(f"{T}/rows:forget", json=body))
        assert (status, code) == (400, expected[0]), body
        assert [one[0] for one in found] == [one[0] for one in expected[1]], body
        assert shop.get(f"{T}/forgettings").json()["forgettings"] == [], body


def test_a_table_that_is_not_there_is_reported(shop: TestClient) -> None:
    assert faults(shop.post(f"{TABLES}/none/rows:forget", json={"keys": [{"id": 1}]}))[:2] == (404, "table_not_found")


def test_only_who_administers_the_table_forgets_and_the_audit_log_says_how_many(opened: Opened, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    client = opened(KEYFOLD_DATA=tmp_path / "data", audit_log=str(log))
    client.post(TABLES, json=new_table(fields=fields_of(mail="STRING"), primaryKeys=["mail"]))
    tokens = {role: create_token(parts_of(client).database, role.value, role) for role in (Role.WRITE, Role.ADMIN)}

    def forget_as(role: Role) -> Any:
        wish = {"keys": [{"mail": "ada@example.org"}]}
        return client.post(f"{T}/rows:forget", json=wish, headers={"Authorization": f"Bearer {tokens[role]}"})

    assert faults(forget_as(Role.WRITE))[:2] == (403, "forbidden")
    made = forget_as(Role.ADMIN).json()
    assert made["requestedBy"] == "admin"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["operation"], line["outcome"]) for line in lines[-2:]] == [
        ("forgetRows", "refused"),
        ("forgetRows", "done"),
    ]
    assert (lines[-1]["forgetting"], lines[-1]["keys"], lines[-1]["token"]) == (made["id"], 1, "admin")
    assert "ada@" not in log.read_text()
    assert b"ada@" not in (tmp_path / "data" / "catalog.sqlite").read_bytes()


def test_a_snapshot_that_a_delta_log_alone_keeps_is_not_gone_back_to(
    create: Create, shop: TestClient, app: FastAPI, merge: Merge
) -> None:
    create(options={"delta.publish": "true"})
    for note in "ab":
        merge({"id": 1, "note": note})
    made = shop.post(f"{T}/rows:forget", json={"keys": [{"id": 1}]}).json()
    assert forget(app) == 1
    assert shop.get(f"{T}/rows?key=1&snapshot=2").status_code == 404
    refused = shop.post(f"{T}/rollback", json={"snapshot": 1})
    assert (refused.status_code, refused.json()["errorCode"]) == (409, "snapshot_to_forget")
    assert made["id"] in refused.json()["detail"]
    kept = shop.post(f"{T}/tags", json={"tagName": "v1", "snapshotId": 1})
    assert (kept.status_code, kept.json()["errorCode"]) == (409, "snapshot_to_forget")
    assert shop.post(f"{T}/tags", json={"tagName": "v2"}).status_code == 200
    assert shop.post(f"{T}/rollback", json={"snapshot": 2}).status_code == 200
    assert shop.get(f"{T}/rows?key=1&consistency=merged").status_code == 404


def test_a_delta_log_that_nobody_writes_any_more_is_in_the_way(create: Create, shop: TestClient, merge: Merge) -> None:
    create(options={"delta.publish": "true"})
    merge({"id": 1})
    off = {"changes": [{"action": "setOption", "key": "delta.publish", "value": "false"}]}
    assert shop.post(T, json=off).status_code == 200
    refused = shop.post(f"{T}/rows:forget", json={"keys": [{"id": 1}]})
    assert (refused.status_code, refused.json()["errorCode"]) == (409, "publication_stopped")
