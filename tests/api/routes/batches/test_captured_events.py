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

from tests.api.conftest import DATABASES, TABLES, Create, fields_of

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
    ["__my_own", "X19teV9vd24=", ["__my_own"], ["X19teV9vd24="], list(b"__my_own"), {"__my_own": "__my_own"}],
    ids=str,
)
def test_another_placeholder_is_known_by_its_parameter(value: Any, table: Table, shop: TestClient) -> None:
    table({"id": "BIGINT", "v": "STRING", "n": "INT"}, "id", **UNCHANGED)
    assert shop.post(f"{T}/batches", json={"records": [{"id": 1, "v": "a", "n": 1}]}).status_code == 202
    event = json.dumps({"op": "u", "before": None, "after": {"id": 1, "v": value, "n": 2}})
    assert post(shop, event, unavailable="__my_own").status_code == 202
    assert shop.get(f"{T}/rows?key=1").json() == {"id": 1, "v": "a", "n": 2}


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


def test_elements_of_arrays_are_read_as_values_at_the_top_are(table: Table, shop: TestClient) -> None:
    table({"id": "INT", "an": "ARRAY<DECIMAL(6, 2)>", "ad": "ARRAY<DATE>", "au": "ARRAY<STRING>"}, "id")
    event = json.loads(capture("16"))
    after = next(field for field in event["schema"]["fields"] if field["field"] == "after")
    kept = ("id", "an", "ad", "au")
    after["fields"] = [field for field in after["fields"] if field["field"] in kept]
    event["payload"]["after"] = {name: event["payload"]["after"][name] for name in kept}
    answer = post(shop, json.dumps(event))
    assert answer.status_code == 202, answer.text
    row = shop.get(f"{T}/rows?key=1").json()
    assert all(len(text) == 10 for text in row["ad"] if text is not None)
    assert all("." in text for text in row["an"] if text is not None)


@pytest.mark.parametrize("number", ["19", "20", "21", "22"])
def test_what_is_no_row_is_counted_and_skipped(number: str, table: Table, shop: TestClient) -> None:
    table(ORDERS, "id")
    answer = post(shop, capture(number))
    assert (answer.status_code, answer.json()["records"]) == (202, 0)
    assert [(warning["code"], warning["count"]) for warning in answer.json()["warnings"]] == [("skipped_events", 1)]
    mixed = post(shop, json.dumps([json.loads(capture(one)) for one in (number, "02", number)]))
    assert (mixed.status_code, mixed.json()["records"]) == (202, 1)
    assert mixed.json()["warnings"][0]["count"] == 2


@pytest.mark.parametrize("how", ["debezium-json", "debezium-flat-json"])
def test_rows_without_an_envelope_are_read(how: str, table: Table, shop: TestClient) -> None:
    table({**ACCOUNTS, "balance": "STRING"}, "email")
    assert post(shop, capture("34"), how).status_code == 202
    assert shop.get(f"{T}/rows?key=bob@example.com").json()["name"] == "Bob"
    assert post(shop, capture("35"), how).status_code == 202
    assert shop.get(f"{T}/rows?key=z@example.org").status_code == 404


@pytest.mark.parametrize("how", ["debezium-json", "debezium-flat-json"])
@pytest.mark.parametrize("url", [f"{T}/batches", f"{DATABASES}/shop/batches"])
def test_such_a_row_may_have_the_names_of_a_wrapper(how: str, url: str, table: Table, shop: TestClient) -> None:
    table({"id": "BIGINT", "schema": "STRING", "payload": "STRING"}, "id")
    row = {"id": 1, "schema": "s", "__op": "c", "__db": "shop", "__table": "orders"}
    for value in ("x", None, '{"id": 2}'):
        answer = shop.post(url, params={"format": how}, json=[{**row, "payload": value}])
        assert answer.status_code == 202, answer.text
        assert shop.get(f"{T}/rows?key=1").json() == {"id": 1, "schema": "s", "payload": value}


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


TRUTH, BYTES = {"b": "BOOLEAN"}, {"b": "BYTES"}
LEFT_OUT = [
    {"type": "insert", "data": {"id": 1, "v": "a", "w": "x"}},
    {"type": "update", "data": {"id": 1, "w": "y"}, "old": {"v": "a", "w": "x"}},
]
# As Canal 1.1.7 wrote them of MariaDB: a label of an ENUM has its number, those of a SET have a bit each, and the zeros
# at the end of a BINARY are left out.
LABELS = {
    "type": "UPDATE",
    "data": [{"id": "1", "mood": "3", "several": "9", "listed": "5", "none": "0", "fixed": "M", "year": "2"}],
    "old": [{"mood": "1"}],
    "mysqlType": {
        "id": "int(11)",
        "mood": "enum('sad','1','it''s, or (not)')",
        "several": "set('a','b','c','d)')",
        "listed": "SET('a','b','c')",
        "none": "set('a')",
        "fixed": "binary(3)",
        "year": "year(4)",
    },
}
LABELLED = {**dict.fromkeys(("mood", "several", "none", "year"), "STRING"), "listed": "ARRAY<STRING>", "fixed": "BYTES"}
# Of each the format, the columns, the events, and what the row has then.
MEANT: list[tuple[str, dict[str, str], list[Any], dict[str, Any]]] = [
    ("debezium-json", TRUTH, [{"op": "c", "before": None, "after": {"id": 1, "b": 1}}], {"b": True}),
    ("debezium-flat-json", TRUTH, [{"id": 1, "b": 1}], {"b": True}),
    ("maxwell-json", TRUTH, [{"type": "insert", "data": {"id": 1, "b": 1}}], {"b": True}),
    ("canal-json", TRUTH, [{"type": "INSERT", "data": [{"id": "1", "b": "1"}]}], {"b": True}),
    ("canal-json", BYTES, [{"type": "INSERT", "data": [{"id": "1", "b": "abcdÿ"}]}], {"b": "YWJjZP8="}),
    (
        "canal-json",
        LABELLED,
        [LABELS],
        {
            "mood": "it's, or (not)",
            "several": "a,d)",
            "none": "",
            "year": "2",
            "listed": ["a", "c"],
            "fixed": "TQAA",
        },
    ),
    ("maxwell-json", {"v": "STRING", "w": "STRING"}, LEFT_OUT, {"v": None, "w": "y"}),
    (
        "maxwell-json",
        {"doc": "STRING", "several": "ARRAY<STRING>"},
        [{"type": "insert", "data": {"id": 1, "doc": {"n": 1.10, "of": [18446744073709551616]}, "several": ["a"]}}],
        {"doc": '{"n":1.1,"of":[18446744073709551616]}', "several": ["a"]},
    ),
    (
        "maxwell-json",
        {"at": "TIMESTAMP(0) WITH LOCAL TIME ZONE"},
        [{"type": "insert", "data": {"id": 1, "at": "2026-03-01 09:00:00"}}],
        {"at": "2026-03-01T09:00:00Z"},
    ),
]


@pytest.mark.parametrize(("how", "columns", "events", "row"), MEANT)
def test_values_are_those_that_the_format_means(
    how: str, columns: dict[str, str], events: list[Any], row: dict[str, Any], table: Table, shop: TestClient
) -> None:
    table({"id": "BIGINT", **columns}, "id", **UNCHANGED)
    assert post(shop, json.dumps(events), how).status_code == 202
    assert shop.get(f"{T}/rows?key=1").json() == {"id": 1, **row}


def negative_scale() -> str:
    """The captured event of all types, with the key and what Debezium cannot say."""
    event = json.loads(capture("16"))
    event["payload"]["after"] = {name: event["payload"]["after"][name] for name in ("id", "neg")}
    return json.dumps(event)


PLACEHOLDER = {"op": "c", "before": None, "after": {"id": 1, "v": "__debezium_unavailable_value"}}
# Of each the format, the columns, the body, the place of its fault, and what its code, detail and fix say.
REFUSED: list[tuple[str, dict[str, str], str, str, tuple[str, ...]]] = [
    ("debezium-json", ORDERS, capture("14"), "/slot", ("too_many_digits", "events.truncate-time")),
    ("debezium-json", ORDERS, capture("13"), "/due", ("infinity",)),
    ("debezium-json", ORDERS, capture("23"), "", ("unusable_event", "truncation")),
    ("debezium-json", KEYED, json.dumps(PLACEHOLDER), "/v", ("unusable_event",)),
    ("debezium-json", KEYED, json.dumps({"op": "c", "after": '{"_id": 1}'}), "", ("ExtractNewDocumentState",)),
    ("debezium-json", KEYED | {"neg": "DECIMAL(10, 0)"}, negative_scale(), "/neg", ("decimal.handling.mode=string",)),
    ("canal-json", KEYED | BYTES, json.dumps({"type": "INSERT", "data": [{"id": "1", "b": "€"}]}), "/b", ()),
    ("maxwell-json", KEYED, json.dumps({"type": "insert", "data": {"id": 1, "v": ["a"]}}), "/v", ("wrong_type",)),
]


@pytest.mark.parametrize(("how", "columns", "body", "place", "said"), REFUSED)
def test_what_cannot_be_read_is_refused_with_the_fix(
    how: str, columns: dict[str, str], body: str, place: str, said: tuple[str, ...], table: Table, shop: TestClient
) -> None:
    table(columns, "id", **UNCHANGED)
    [fault] = post(shop, body, how).json()["errors"]
    assert fault["pointer"] == f"/events/0{place}"
    assert all(one in f"{fault['code']} {fault['detail']} {fault['fix']}" for one in said), fault


def test_json_with_a_byte_order_mark_is_read(table: Table, shop: TestClient) -> None:
    table(KEYED, "id")
    for kind, body in (("application/json", '{"records": [{"id": 1}]}'), ("application/x-ndjson", '{"id": 2}')):
        answer = shop.post(f"{T}/batches", content=b"\xef\xbb\xbf" + body.encode(), headers={"Content-Type": kind})
        assert answer.status_code == 202, answer.text
