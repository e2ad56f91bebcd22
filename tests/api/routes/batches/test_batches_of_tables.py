"""One request for several tables of a database: routed by what events say, all of it stored or nothing."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.services.access.tokens import create_token
from tests.api.conftest import DATABASES, TABLES, Create, Merge, fields_of
from tests.api.routes.batches.test_captured_events import ACCOUNTS, LINES, ORDERS, REMOVES, capture

URL = f"{DATABASES}/shop/batches"
ITEM = {"id": "BIGINT", "v": "STRING"}
Tables = Callable[..., None]


@pytest.fixture
def table(create: Create) -> Tables:
    def make(name: str, columns: dict[str, str], *key: str, **options: str) -> None:
        fields = fields_of(**columns)
        create(name, fields=fields, primaryKeys=list(key), options=options)

    return make


@pytest.fixture
def two(table: Tables) -> None:
    table("a", ITEM, "id")
    table("b", ITEM, "id")


def post(shop: TestClient, body: object, how: str = "debezium-json", key: str | None = None, **params: str) -> Any:
    text = body if isinstance(body, str) else json.dumps(body)
    headers = {"Content-Type": "application/json"} | ({} if key is None else {"Idempotency-Key": key})
    return shop.post(URL, params=({"format": how} if how else {}) | params, content=text, headers=headers)


def event(of: str, row: dict[str, Any], op: str = "c", schema: str = "public") -> dict[str, Any]:
    source = {"db": "src", "schema": schema, "table": of}
    return {"op": op, "before": None, "after": row, "source": source}


def rows(shop: TestClient, name: str) -> list[Any]:
    return [json.loads(line) for line in shop.get(f"{TABLES}/{name}/rows:scan").text.splitlines()]


def batches(shop: TestClient, name: str) -> list[Any]:
    found: list[Any] = shop.get(f"{TABLES}/{name}/batches").json()["batches"]
    return found


def test_a_captured_body_of_several_tables_is_one_request(table: Tables, shop: TestClient) -> None:
    table("orders", ORDERS, "id", **REMOVES)
    table("order_lines", {**LINES, "gift": "BOOLEAN"}, "order_id", "line_no")
    line = {"order_id": 7, "line_no": 1, "sku": "a", "qty": 3, "price": "1.00"}
    sent = {"tables": {"orders": {"records": [{"id": 5, "note": "long"}]}, "order_lines": {"records": [line]}}}
    assert post(shop, sent, how="").status_code == 202
    answer = post(shop, capture("30"))
    assert answer.status_code == 202, answer.text
    body = answer.json()
    assert {batch["table"]: batch["records"] for batch in body["batches"]} == {"order_lines": 2, "orders": 1}
    assert (body["skipped"], body["warnings"]) == ([], [])
    assert shop.get(f"{TABLES}/order_lines/rows?key=7&key=1").status_code == 404
    order = shop.get(f"{TABLES}/orders/rows?key=5").json()
    assert (order["status"], order["note"]) == ("sent", "long")


def test_a_cloudevent_is_routed_by_its_attributes(table: Tables, shop: TestClient) -> None:
    table("accounts", ACCOUNTS, "email")
    body = capture("18")
    kinds = {"application/cloudevents+json": body, "application/cloudevents-batch+json": f"[{body}, {body}]"}
    for kind, content in kinds.items():
        answer = shop.post(URL, content=content, headers={"Content-Type": kind})
        assert answer.status_code == 202, answer.text
        assert [batch["table"] for batch in answer.json()["batches"]] == ["accounts"]
    assert shop.get(f"{TABLES}/accounts/rows?key=ann@example.org").json()["balance"] == "10.00"


# The table, the key and the value of an event of each shape.
SHAPES: dict[str, Callable[[str, int, str], Any]] = {
    "debezium-json": lambda of, k, v: event(of, {"id": k, "v": v}),
    "debezium-json with its schema": lambda of, k, v: {"schema": {}, "payload": event(of, {"id": k, "v": v})},
    "debezium-json of MongoDB": lambda of, k, v: {
        "op": "c",
        "after": {"id": k, "v": v},
        "source": {"db": "m", "table" if of == "a" else "collection": of},
    },
    "debezium-flat-json": lambda of, k, v: {"id": k, "v": v, "__table": of},
    "debezium-flat-json with its schema": lambda of, k, v: {"id": k, "v": v, "__source_table": of, "__schema": "s"},
    "canal-json": lambda of, k, v: {"type": "INSERT", "database": "m", "table": of, "data": [{"id": str(k), "v": v}]},
    "maxwell-json": lambda of, k, v: {"type": "insert", "database": "m", "table": of, "data": {"id": k, "v": v}},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_format_names_the_table(shape: str, two: None, shop: TestClient) -> None:
    how, events = shape.partition(" ")[0], [SHAPES[shape]("a", 1, "x"), SHAPES[shape]("b", 2, "y")]
    assert post(shop, events, how).status_code == 202
    assert (rows(shop, "a"), rows(shop, "b")) == ([{"id": 1, "v": "x"}], [{"id": 2, "v": "y"}])
    lines = "\n\n".join(json.dumps(one) for one in events)
    answer = shop.post(URL, params={"format": how}, content=lines, headers={"Content-Type": "application/x-ndjson"})
    assert answer.status_code == 202
    assert [len(batches(shop, name)) for name in "ab"] == [2, 2]


def test_a_fault_in_the_last_table_stores_nothing_in_any(two: None, shop: TestClient) -> None:
    events = [event("a", {"id": 1}), event("b", {"id": "no"}), event("a", {"id": True}), event("gone", {"id": 1})]
    answer = post(shop, events, key="k")
    assert answer.status_code == 400
    reported = {
        (error["pointer"], error["code"], error["table"], error["row"], error.get("column"))
        for error in answer.json()["errors"]
    }
    assert reported == {
        ("/events/1/id", "wrong_type", "b", 1, "id"),
        ("/events/2/id", "wrong_type", "a", 2, "id"),
        ("/events/3", "unknown_table", "public.gone", 3, None),
    }
    assert (batches(shop, "a"), batches(shop, "b")) == ([], [])
    assert post(shop, events[:1], key="k").status_code == 202  # a request that stored nothing has used no key


def test_records_by_table(two: None, shop: TestClient) -> None:
    sent = {"a": {"records": [{"id": 1, "v": "x"}]}, "b": {"records": [{"id": 2}, {"id": 3, "_kind": "-D"}]}}
    answer = post(shop, {"tables": sent}, how="")
    assert answer.status_code == 202
    assert {batch["table"]: batch["records"] for batch in answer.json()["batches"]} == {"a": 1, "b": 2}
    sent["b"]["records"][0]["id"] = "no"
    [fault] = post(shop, {"tables": sent}, how="").json()["errors"]
    assert (fault["pointer"], fault["table"], fault["row"]) == ("/tables/b/records/0/id", "b", 0)
    assert len(batches(shop, "a")) == 1


OTHER_BODIES = [
    ("{", "", "not_json"),
    ("[]", "", "dict_type"),
    ("{}", "/tables", "missing"),
    ('{"records": []}', "/records", "unknown_member"),
    ('{"tables": []}', "/tables", "dict_type"),
    ('{"tables": {"a": []}}', "/tables/a", "dict_type"),
    ('{"tables": {"a": {}}}', "/tables/a/records", "missing"),
    ('{"tables": {"a": {"records": {}}}}', "/tables/a/records", "list_type"),
    ('{"tables": {"a": {"records": [1]}}}', "/tables/a/records/0", "not_an_object"),
    ('{"tables": {"c": {"records": []}}}', "/tables/c", "unknown_table"),
]


def test_another_body_is_refused_at_its_fault(two: None, shop: TestClient) -> None:
    for body, pointer, code in OTHER_BODIES:
        answer = post(shop, body, how="")
        assert answer.status_code == 400, body
        assert (pointer, code) in [(error["pointer"], error["code"]) for error in answer.json()["errors"]], answer.text


def test_other_media_types_are_for_one_table(two: None, shop: TestClient) -> None:
    assert shop.post(URL, content="id\n1\n", headers={"Content-Type": "text/csv"}).status_code == 415
    assert shop.post(URL, content="{}", headers={"Content-Type": "application/x-ndjson"}).status_code == 415


def test_tables_that_do_not_exist_are_skipped_if_requested(two: None, shop: TestClient) -> None:
    events = [event("a", {"id": 1}), *[event("gone", {"id": 1})] * 2, json.loads(capture("24"))]
    answer = post(shop, events, unknownTables="skip")
    assert answer.status_code == 202
    counted = {one["name"]: one["count"] for one in answer.json()["skipped"]}
    assert counted == {"public.gone": 2, "shop.signals": 1}
    assert [batch["table"] for batch in answer.json()["batches"]] == ["a"]
    none = post(shop, {"tables": {"gone": {"records": [{}, {}]}}}, how="", unknownTables="skip")
    assert (none.status_code, none.json()["batches"]) == (202, [])
    assert none.json()["skipped"] == [{"name": "gone", "count": 2}]


@pytest.mark.parametrize("number", ["19", "20", "21", "22"])
def test_events_of_no_row_are_counted(number: str, two: None, shop: TestClient) -> None:
    answer = post(shop, [json.loads(capture(number)), event("a", {"id": 1}), None])
    assert answer.status_code == 202, answer.text
    assert [(warning["code"], warning["count"]) for warning in answer.json()["warnings"]] == [("skipped_events", 2)]
    alone = post(shop, capture(number))
    assert (alone.status_code, alone.json()["batches"]) == (202, [])


def test_an_event_that_names_no_table_is_refused(two: None, shop: TestClient) -> None:
    for sent in ({"op": "c", "after": {"id": 1}}, 7, "x"):
        [fault] = post(shop, [event("a", {"id": 1}), sent]).json()["errors"]
        assert (fault["pointer"], fault["code"]) == ("/events/1", "unusable_event")
    [fault] = post(shop, '{"op": ').json()["errors"]
    assert fault["code"] == "not_json"


def test_a_truncation_of_a_table_is_refused(two: None, shop: TestClient) -> None:
    [fault] = post(shop, [event("a", {"id": 1}), event("b", {}, op="t")]).json()["errors"]
    assert (fault["pointer"], fault["table"]) == ("/events/1", "b")
    assert "truncation" in fault["detail"]


def test_a_table_takes_the_sources_that_it_declares(table: Tables, shop: TestClient) -> None:
    table("all", ITEM, "id", **{"events.source": "eu.orders, us.orders"})
    table("eu", ITEM, "id", **{"events.source": "src.eu.orders"})
    table("orders", ITEM, "id")
    sent = [event("orders", {"id": 1, "v": "eu"}, schema="eu")]
    assert post(shop, sent).status_code == 202
    sent = [event("orders", {"id": 2, "v": "us"}, schema="us")]
    assert post(shop, sent).status_code == 202
    ids = {name: sorted(row["id"] for row in rows(shop, name)) for name in ("all", "eu", "orders")}
    assert ids == {"all": [1, 2], "eu": [1], "orders": [1, 2]}


def test_two_schemas_are_no_one_table_unless_it_says_so(two: None, shop: TestClient) -> None:
    sent = [event("a", {"id": 1}), event("a", {"id": 1}, schema="archive")]
    [fault] = post(shop, sent).json()["errors"]
    assert (fault["pointer"], fault["code"], fault["table"]) == ("/events/1", "foreign_event", "a")
    assert "events.source = archive.a" in fault["fix"]


def test_an_event_of_another_table_is_refused_at_a_tables_own_url(two: None, shop: TestClient) -> None:
    sent = [event("a", {"id": 1}), event("b", {"id": 2}), json.loads(capture("19"))]
    content, kind = json.dumps(sent), {"Content-Type": "application/json"}
    answer = shop.post(f"{TABLES}/a/batches?format=debezium-json", content=content, headers=kind)
    [fault] = answer.json()["errors"]
    assert (fault["pointer"], fault["code"]) == ("/events/1", "foreign_event")
    body = capture("18")
    answer = shop.post(f"{TABLES}/a/batches", content=body, headers={"Content-Type": "application/cloudevents+json"})
    assert answer.json()["errors"][0]["code"] == "foreign_event"


def test_a_change_of_another_tables_schema_is_no_fault_there(two: None, shop: TestClient) -> None:
    ddl = {"source": {"db": "m", "table": "b"}, "ddl": "ALTER TABLE b", "databaseName": "m", "tableChanges": []}
    answer = shop.post(f"{TABLES}/a/batches?format=debezium-json", json=ddl)
    assert (answer.status_code, answer.json()["records"]) == (202, 0)
    assert [batch["table"] for batch in post(shop, ddl).json()["batches"]] == ["b"]


def test_a_repeated_key_is_answered_with_the_same_batches(two: None, shop: TestClient) -> None:
    sent = [event("a", {"id": 1}), event("b", {"id": 2})]
    first, again = post(shop, sent, key="k"), post(shop, sent, key="k")
    ids = [[batch["id"] for batch in answer.json()["batches"]] for answer in (first, again)]
    assert sorted(ids[0]) == sorted(ids[1])
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert [len(batches(shop, name)) for name in "ab"] == [1, 1]
    for other in (sent[:1], [*sent, event("a", {"id": 3})]):
        assert post(shop, other, key="k").status_code == 422
    assert post(shop, sent, key="k", unknownTables="skip").status_code == 422
    own = shop.post(f"{TABLES}/a/batches", json={"records": [{"id": 9}]}, headers={"Idempotency-Key": "k"})
    assert own.status_code == 422
    assert post(shop, sent, key="k" * 256).status_code == 400


def test_the_same_key_at_once_is_stored_once(two: None, shop: TestClient) -> None:
    sent = [event("a", {"id": 1}), event("b", {"id": 2})]
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(post(shop, sent, key="k"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.status_code for answer in answers} <= {202, 409}
    assert [len(batches(shop, name)) for name in "ab"] == [1, 1]


def test_a_token_must_be_for_every_table(app: FastAPI, two: None, shop: TestClient) -> None:
    database = app.state.parts.database
    boss = {"Authorization": f"Bearer {create_token(database, 'boss')}"}
    on_a, reads, whole = (
        {"Authorization": f"Bearer {create_token(database, name, role, [on])}"}
        for name, role, on in (("a", "write", "shop.a"), ("r", "read", "shop.*"), ("w", "write", "shop.*"))
    )

    def sent(events: list[Any], headers: dict[str, str]) -> int:
        headers = headers | {"Idempotency-Key": "k"}
        return int(shop.post(URL, params={"format": "debezium-json"}, json=events, headers=headers).status_code)

    both = [event("a", {"id": 1}), event("b", {"id": 2})]
    assert sent(both, on_a) == 403
    assert sent(both, reads) == 403
    assert [len(shop.get(f"{TABLES}/{name}/batches", headers=boss).json()["batches"]) for name in "ab"] == [0, 0]
    assert sent(both, whole) == 202
    assert sent(both, on_a) == 403  # a repeated key tells no more than the first request would
    for gone in ("gone", "b"):  # a token cannot find out which tables there are
        for params in ({}, {"unknownTables": "skip"}):
            sent_by = {"tables": {gone: {"records": []}}}
            assert shop.post(URL, params=params, json=sent_by, headers=on_a).status_code == 403
            asked = {"format": "debezium-json"} | params
            assert shop.post(URL, params=asked, json=event(gone, {"id": 1}), headers=on_a).status_code == 403
    only = shop.post(URL, params={"format": "debezium-json"}, json=both[:1], headers=on_a)
    assert only.status_code == 202


def test_a_large_packed_body_with_a_mark_is_read(two: None, shop: TestClient) -> None:
    events = [event("ab"[number % 2], {"id": number, "v": "x" * 500}) for number in range(12_000)]
    content = gzip.compress(b"\xef\xbb\xbf" + json.dumps(events).encode())
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = shop.post(URL, params={"format": "debezium-json"}, content=content, headers=headers)
    assert answer.status_code == 202, answer.text
    assert [batch["records"] for batch in answer.json()["batches"]] == [6000, 6000]


def test_who_prefers_to_wait_waits_for_all_tables(two: None, shop: TestClient, merge: Merge) -> None:
    stop = threading.Event()

    def merge_posted(name: str) -> None:
        while not stop.is_set() and not batches(shop, name):
            stop.wait(0.05)
        merge(name=name)

    threads = [threading.Thread(target=merge_posted, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    sent = {"tables": {name: {"records": [{"id": 1}]} for name in "ab"}}
    answer = shop.post(URL, json=sent, headers={"Prefer": "wait=30"})
    stop.set()
    for thread in threads:
        thread.join()
    assert (answer.status_code, answer.headers["Preference-Applied"]) == (200, "wait=30")
    assert [batch["state"] for batch in answer.json()["batches"]] == ["merged", "merged"]
    late = shop.post(URL, json=sent, headers={"Prefer": "wait=1"})
    assert (late.status_code, late.headers["Retry-After"]) == (202, "1")


def test_an_empty_event_is_no_heartbeat(two: None, shop: TestClient) -> None:
    for how in ("debezium-json", "debezium-flat-json"):
        assert post(shop, [{}], how).status_code == 400
        own = shop.post(f"{TABLES}/a/batches", params={"format": how}, json=[{}])
        assert own.status_code == 400
        beat = shop.post(f"{TABLES}/a/batches", params={"format": how}, json=[{"ts_ms": 1}])
        assert beat.json()["warnings"][0]["code"] == "skipped_events"


def test_a_cloudevent_may_have_another_placeholder(table: Tables, shop: TestClient) -> None:
    table("accounts", ACCOUNTS, "email", **REMOVES)
    sent = json.loads(capture("18"))
    sent["iodebeziumop"] = sent["data"]["payload"]["op"] = "u"
    sent["data"]["payload"]["after"]["name"] = "__mine"
    headers = {"Content-Type": "application/cloudevents+json"}
    for url in (URL, f"{TABLES}/accounts/batches"):
        answer = shop.post(url, params={"unavailable": "__mine"}, content=json.dumps(sent), headers=headers)
        assert answer.status_code == 202, answer.text
    assert shop.get(f"{TABLES}/accounts/rows?key=ann@example.org").json()["name"] is None


def test_a_database_that_is_not_there_is_404(client: TestClient) -> None:
    assert client.post(f"{DATABASES}/no/batches", json={"tables": {}}).status_code == 404
