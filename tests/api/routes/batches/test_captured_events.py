"""Requests of a real Debezium, as its HTTP sink sent them (tests/cases/cdc), come to the rows of the database."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.conftest import TABLES, Create, fields_of

Table = Callable[..., None]
CAPTURED = Path(__file__).parent.parent.parent.parent / "cases" / "cdc"
T = f"{TABLES}/wide"
SOURCES = {"events.source": "shop.orders, shop.accounts, shop.order_lines, shop.types, shop.nokey"}
UNCHANGED = {"merge-engine": "partial-update", "record.absent-columns": "unchanged"}
REMOVES = UNCHANGED | {"partial-update.remove-record-on-delete": "true"}
ORDERS = {
    "id": "BIGINT", "customer": "STRING", "status": "STRING", "total": "DECIMAL(12, 2)", "weight": "STRING",
    "placed": "TIMESTAMP(6) WITH LOCAL TIME ZONE", "updated": "TIMESTAMP(3)", "due": "DATE", "slot": "TIME(3)",
    "doc": "STRING", "tags": "ARRAY<STRING>", "photo": "BYTES", "note": "STRING", "flag": "BOOLEAN",
    "rate": "DOUBLE", "qty": "SMALLINT", "r": "FLOAT",
}  # fmt: skip
ACCOUNTS = {"email": "STRING", "name": "STRING", "balance": "DECIMAL(10, 2)"}
LINES = {"order_id": "BIGINT", "line_no": "INT", "sku": "STRING", "qty": "INT NOT NULL", "price": "DECIMAL(10, 2)"}


def capture(number: str) -> str:
    [path] = CAPTURED.glob(f"{number}-*.json")
    body: str = json.loads(path.read_text())["request"]["body"]
    return body


def post(shop: TestClient, body: str, how: str = "debezium-json", **params: str) -> Any:
    params = {"format": how, **params}
    return shop.post(f"{T}/batches", params=params, content=body, headers={"Content-Type": "application/json"})


@pytest.fixture
def table(create: Create) -> Table:
    def make(columns: dict[str, str], *key: str, **options: str) -> None:
        fields = fields_of(**columns)
        create(fields=fields, primaryKeys=list(key), options=SOURCES | options)

    return make


def test_values_of_every_column_are_those_of_the_database(table: Table, shop: TestClient) -> None:
    table(ORDERS, "id", **{"events.truncate-time": "true"})
    for number in ("02", "03", "14", "15"):
        answer = post(shop, capture(number))
        assert answer.status_code == 202, (number, answer.text)
    row = shop.get(f"{T}/rows?key=1").json()
    assert (row["due"], row["slot"], row["updated"]) == ("2026-03-05", "14:30:00.5", "2026-03-01T09:00:00.123")
    assert (row["placed"], row["total"], row["tags"]) == ("2026-03-01T09:00:00.123456Z", "19.90", ["a", "b"])
    third = shop.get(f"{T}/rows?key=3").json()
    assert third["weight"] == "123456789012345678901234567890.123456789"
    assert third["slot"] == "23:59:59.999"


@pytest.mark.parametrize("seed", range(5))
def test_events_in_any_order_and_twice_come_to_the_databases_row(table: Table, shop: TestClient, seed: int) -> None:
    order = {"sequence.field": "lsn", "fields.lsn.from-event": "source.lsn"}
    table({**LINES, "lsn": "BIGINT"}, "order_id", "line_no", **order)
    last = json.loads(capture("10"))
    events = []
    for step in range(4):
        event = copy.deepcopy(last)
        payload = event["payload"]
        lsn = payload["source"]["lsn"] + step * 8
        payload["source"] |= {"lsn": lsn, "sequence": json.dumps([None, str(lsn)])}
        payload["after"]["sku"] = f"change {step}"
        events.append(event)
    shuffled = events * 2
    random.Random(seed).shuffle(shuffled)
    for event in shuffled:
        assert post(shop, json.dumps(event)).status_code == 202
    row = shop.get(f"{T}/rows?key=4&key=1").json()
    assert (row["sku"], row["lsn"]) == ("change 3", events[-1]["payload"]["source"]["lsn"])


def test_without_the_option_a_time_with_more_digits_is_refused_with_it(table: Table, shop: TestClient) -> None:
    table(ORDERS, "id")
    [fault] = post(shop, capture("14")).json()["errors"]
    assert (fault["pointer"], fault["code"]) == ("/events/0/slot", "too_many_digits")
    assert "events.truncate-time" in fault["fix"]


def test_values_that_did_not_change_stay_in_every_shape_of_their_placeholder(table: Table, shop: TestClient) -> None:
    table(ORDERS, "id", **UNCHANGED)
    before = {"id": 5, "doc": "{}", "note": "long", "tags": ["x"], "photo": "AP8Q"}
    assert shop.post(f"{T}/batches", json={"records": [before]}).status_code == 202
    answer = post(shop, capture("05"))
    assert answer.status_code == 202, answer.text
    row = shop.get(f"{T}/rows?key=5").json()
    assert {name: row[name] for name in before} == before
    assert row["status"] == "sent"


@pytest.mark.parametrize("number", ["05", "06"])
def test_a_table_of_whole_rows_refuses_them_with_the_fix(number: str, table: Table, shop: TestClient) -> None:
    table(ORDERS, "id")
    [fault, *_] = post(shop, capture(number)).json()["errors"]
    assert fault["code"] == "unusable_event"
    assert "record.absent-columns = unchanged" in fault["fix"]


@pytest.mark.parametrize(
    "value",
    [
        "__my_own",
        "X19teV9vd24=",
        ["__my_own"],
        ["X19teV9vd24="],
        list(b"__my_own"),
        {"__my_own": "__my_own"},
    ],
    ids=str,
)
def test_another_placeholder_is_known_by_its_parameter(value: Any, table: Table, shop: TestClient) -> None:
    table({"id": "BIGINT", "v": "STRING", "n": "INT"}, "id", **UNCHANGED)
    assert shop.post(f"{T}/batches", json={"records": [{"id": 1, "v": "a", "n": 1}]}).status_code == 202
    event = json.dumps({"op": "u", "before": None, "after": {"id": 1, "v": value, "n": 2}})
    assert post(shop, event, unavailable="__my_own").status_code == 202
    assert shop.get(f"{T}/rows?key=1").json() == {"id": 1, "v": "a", "n": 2}
    assert shop.get(f"{T}/rows?key=1").json()["v"] == "a"


def test_a_placeholder_in_a_new_row_is_a_fault(table: Table, shop: TestClient) -> None:
    table({"id": "BIGINT", "v": "STRING"}, "id", **UNCHANGED)
    event = {"op": "c", "before": None, "after": {"id": 1, "v": "__debezium_unavailable_value"}}
    [fault] = post(shop, json.dumps(event)).json()["errors"]
    assert (fault["pointer"], fault["code"]) == ("/events/0/v", "unusable_event")


def test_made_up_values_beside_the_key_of_a_delete_count_for_nothing(table: Table, shop: TestClient) -> None:
    table(LINES, "order_id", "line_no")
    line = {"order_id": 1, "line_no": 2, "sku": "a", "qty": 3, "price": "1.00"}
    assert shop.post(f"{T}/batches", json={"records": [line]}).status_code == 202
    answer = post(shop, capture("09"))
    assert answer.status_code == 202, answer.text
    assert shop.get(f"{T}/rows?key=1&key=2").status_code == 404


def test_a_default_that_may_stand_for_null_is_a_warning(table: Table, shop: TestClient) -> None:
    table(ACCOUNTS, "email")
    [warning] = post(shop, capture("04")).json()["warnings"]
    assert (warning["code"], warning["count"]) == ("null_sent_as_default", 1)


def test_infinity_is_a_fault_that_names_it(table: Table, shop: TestClient) -> None:
    table(ORDERS, "id")
    [fault] = post(shop, capture("13")).json()["errors"]
    assert fault["pointer"] == "/events/0/due"
    assert "infinity" in fault["detail"]


def test_elements_of_arrays_are_read_as_values_at_the_top_are(table: Table, shop: TestClient) -> None:
    table({"id": "INT", "an": "ARRAY<DECIMAL(6, 2)>", "ad": "ARRAY<DATE>", "au": "ARRAY<STRING>"}, "id")
    event = json.loads(capture("16"))
    after = next(one for one in event["schema"]["fields"] if one["field"] == "after")
    kept = ("id", "an", "ad", "au")
    after["fields"] = [one for one in after["fields"] if one["field"] in kept]
    event["payload"]["after"] = {name: event["payload"]["after"][name] for name in kept}
    answer = post(shop, json.dumps(event))
    assert answer.status_code == 202, answer.text
    row = shop.get(f"{T}/rows?key=1").json()
    assert all(len(text) == 10 for text in row["ad"] if text is not None)
    assert all("." in text for text in row["an"] if text is not None)


def test_what_debezium_cannot_say_is_refused_with_its_reason(table: Table, shop: TestClient) -> None:
    table({"id": "INT", "neg": "DECIMAL(10, 0)"}, "id")
    event = json.loads(capture("16"))
    event["payload"]["after"] = {name: event["payload"]["after"][name] for name in ("id", "neg")}
    [fault] = post(shop, json.dumps(event)).json()["errors"]
    assert (fault["pointer"], fault["fix"]) == ("/events/0/neg", "set decimal.handling.mode=string")


@pytest.mark.parametrize("number", ["19", "20", "21", "22"])
def test_what_is_no_row_is_counted_and_skipped(number: str, table: Table, shop: TestClient) -> None:
    table(ORDERS, "id")
    answer = post(shop, capture(number))
    assert (answer.status_code, answer.json()["records"]) == (202, 0)
    assert [(one["code"], one["count"]) for one in answer.json()["warnings"]] == [("skipped_events", 1)]
    mixed = post(shop, json.dumps([json.loads(capture(one)) for one in (number, "02", number)]))
    assert (mixed.status_code, mixed.json()["records"]) == (202, 1)
    assert mixed.json()["warnings"][0]["count"] == 2


def test_a_truncation_is_never_skipped(table: Table, shop: TestClient) -> None:
    table(ORDERS, "id")
    [fault] = post(shop, capture("23")).json()["errors"]
    assert fault["code"] == "unusable_event"
    assert "truncation" in fault["detail"]


@pytest.mark.parametrize("how", ["debezium-json", "debezium-flat-json"])
def test_rows_without_an_envelope_are_read(how: str, table: Table, shop: TestClient) -> None:
    table({**ACCOUNTS, "balance": "STRING"}, "email")
    assert post(shop, capture("34"), how).status_code == 202
    assert shop.get(f"{T}/rows?key=bob@example.com").json()["name"] == "Bob"
    assert post(shop, capture("35"), how).status_code == 202
    assert shop.get(f"{T}/rows?key=z@example.org").status_code == 404


KEYED = {"id": "BIGINT", "v": "STRING"}
MOVES: dict[str, list[Any]] = {
    "canal-json": [
        {"type": "INSERT", "data": [{"id": "1", "v": "a"}]},
        {"type": "UPDATE", "data": [{"id": "2", "v": "a"}], "old": [{"id": "1"}]},
    ],
    "maxwell-json": [
        {"type": "insert", "data": {"id": 1, "v": "a"}},
        {"type": "update", "data": {"id": 2, "v": "a"}, "old": {"id": 1}},
    ],
    "debezium-json": [
        {"op": "c", "before": None, "after": {"id": 1, "v": "a"}},
        {"op": "u", "before": {"id": 1, "v": "a"}, "after": {"id": 2, "v": "a"}},
    ],
}


@pytest.mark.parametrize("how", MOVES)
def test_an_update_that_changes_the_key_removes_the_old_row(how: str, table: Table, shop: TestClient) -> None:
    table(KEYED, "id")
    assert post(shop, json.dumps(MOVES[how]), how).status_code == 202
    assert shop.get(f"{T}/rows?key=1").status_code == 404
    assert shop.get(f"{T}/rows?key=2").json()["v"] == "a"


def test_an_update_that_changes_the_partition_removes_the_row_there(create: Create, shop: TestClient) -> None:
    fields = fields_of(id="BIGINT", day="DATE")
    create(fields=fields, primaryKeys=["id", "day"], partitionKeys=["day"])
    old, new = {"id": 1, "day": "2026-01-01"}, {"id": 1, "day": "2026-01-02"}
    events = [{"op": "c", "before": None, "after": old}, {"op": "u", "before": old, "after": new}]
    assert post(shop, json.dumps(events)).status_code == 202
    assert shop.get(f"{T}/rows?key=1&key=2026-01-01").status_code == 404
    assert shop.get(f"{T}/rows?key=1&key=2026-01-02").status_code == 200


@pytest.mark.parametrize(
    ("how", "event"),
    [
        ("debezium-json", {"op": "c", "before": None, "after": {"id": 1, "b": 1}}),
        ("debezium-flat-json", {"id": 1, "b": 1}),
        ("maxwell-json", {"type": "insert", "data": {"id": 1, "b": 1}}),
        ("canal-json", {"type": "INSERT", "data": [{"id": "1", "b": "1"}]}),
    ],
)
def test_one_is_true_in_every_format(how: str, event: dict[str, Any], table: Table, shop: TestClient) -> None:
    table({"id": "BIGINT", "b": "BOOLEAN"}, "id")
    assert post(shop, json.dumps(event), how).status_code == 202
    assert shop.get(f"{T}/rows?key=1").json()["b"] is True


def test_canals_bytes_are_latin_1(table: Table, shop: TestClient) -> None:
    table({"id": "BIGINT", "b": "BYTES"}, "id")
    assert post(shop, json.dumps({"type": "INSERT", "data": [{"id": "1", "b": "abcdÿ"}]}), "canal-json").is_success
    assert shop.get(f"{T}/rows?key=1").json()["b"] == "YWJjZP8="
    bad = post(shop, json.dumps({"type": "INSERT", "data": [{"id": "1", "b": "€"}]}), "canal-json")
    assert bad.json()["errors"][0]["pointer"] == "/events/0/b"


def test_what_maxwell_leaves_out_and_old_names_is_null(table: Table, shop: TestClient) -> None:
    table({"id": "BIGINT", "v": "STRING", "w": "STRING"}, "id", **UNCHANGED)
    events = [
        {"type": "insert", "data": {"id": 1, "v": "a", "w": "x"}},
        {"type": "update", "data": {"id": 1, "w": "y"}, "old": {"v": "a", "w": "x"}},
    ]
    assert post(shop, json.dumps(events), "maxwell-json").status_code == 202
    assert shop.get(f"{T}/rows?key=1").json() == {"id": 1, "v": None, "w": "y"}


def test_maxwells_timestamps_are_utc(table: Table, shop: TestClient) -> None:
    table({"id": "BIGINT", "at": "TIMESTAMP(0) WITH LOCAL TIME ZONE"}, "id")
    event = {"type": "insert", "data": {"id": 1, "at": "2026-03-01 09:00:00"}}
    assert post(shop, json.dumps(event), "maxwell-json").status_code == 202
    assert shop.get(f"{T}/rows?key=1").json()["at"] == "2026-03-01T09:00:00Z"


@pytest.mark.parametrize(
    ("body", "kind", "where", "fix"),
    [
        ('{"records": [{"ID": 1}]}', "application/json", "/records/0/ID", "did you mean id?"),
        ("id;v\n1;a\n", "text/csv", "/columns/id;v", "separate the fields of CSV by commas"),
        ("id, v\n1,a\n", "text/csv", "/columns/ v", "did you mean v?"),
    ],
)
def test_a_name_that_is_nearly_a_column_has_the_fix(
    body: str, kind: str, where: str, fix: str, table: Table, shop: TestClient
) -> None:
    table(KEYED, "id")
    faults = shop.post(f"{T}/batches", content=body, headers={"Content-Type": kind}).json()["errors"]
    assert fix in [fault["fix"] for fault in faults], faults


def test_a_document_of_mongodb_has_the_fix(table: Table, shop: TestClient) -> None:
    table(KEYED, "id")
    [fault] = post(shop, json.dumps({"op": "c", "after": '{"_id": 1}'})).json()["errors"]
    assert "ExtractNewDocumentState" in fault["fix"]


def test_json_with_a_byte_order_mark_is_read(table: Table, shop: TestClient) -> None:
    table(KEYED, "id")
    for kind, body in (("application/json", '{"records": [{"id": 1}]}'), ("application/x-ndjson", '{"id": 2}')):
        answer = shop.post(f"{T}/batches", content=b"\xef\xbb\xbf" + body.encode(), headers={"Content-Type": kind})
        assert answer.status_code == 202, answer.text
