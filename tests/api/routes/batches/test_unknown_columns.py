"""``unknownColumns``: columns that a table does not have are refused, left out and counted, or added."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.core.access import Role
from app.services.access.tokens import create_token
from tests.api.conftest import DATABASES, TABLES, Create, Merge, fields_of
from tests.api.routes.batches.test_captured_events import LINES, capture

T, ALL = f"{TABLES}/t", f"{DATABASES}/shop/batches"
SOURCE = {"events.source": "shop.order_lines"}
PARTIAL = SOURCE | {"merge-engine": "partial-update", "record.absent-columns": "unchanged"}
JSON = "application/json"
Table = Callable[..., None]


@pytest.fixture
def table(create: Create) -> Table:
    def make(columns: dict[str, str], *key: str, name: str = "t", **options: str) -> None:
        fields = fields_of(**columns)
        create(name, fields=fields, primaryKeys=list(key), options=options)

    return make


def post(
    shop: TestClient, body: object, unknown: str, kind: str = JSON, url: str = f"{T}/batches", **params: str
) -> Any:
    content = body if isinstance(body, (str, bytes)) else json.dumps(body)
    return shop.post(url, params={"unknownColumns": unknown} | params, content=content, headers={"Content-Type": kind})


def records(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"records": list(rows)}


def types(shop: TestClient, name: str = "t") -> dict[str, str]:
    return {field["name"]: field["type"] for field in shop.get(f"{TABLES}/{name}").json()["schema"]["fields"]}


def tabular() -> dict[str, bytes]:
    rows = pa.table({"id": [1, 2], "nope": ["x", "y"], "v": ["a", "b"]})
    stream, file = io.BytesIO(), io.BytesIO()
    with pa.ipc.new_stream(stream, rows.schema) as writer:
        writer.write_table(rows)
    pq.write_table(rows, file)
    return {
        "text/csv": b"id,nope,v\n1,x,a\n2,y,b\n",
        "application/vnd.apache.arrow.stream": stream.getvalue(),
        "application/vnd.apache.parquet": file.getvalue(),
        "application/x-ndjson": b'{"id":1,"nope":"x","v":"a"}\n{"id":2,"nope":"y","v":"b"}\n',
        JSON: json.dumps(records({"id": 1, "nope": "x", "v": "a"}, {"id": 2, "nope": "y", "v": "b"})).encode(),
    }


@pytest.mark.parametrize("kind", list(tabular()))
def test_ignored_columns_are_left_out_and_counted_in_every_format(table: Table, shop: TestClient, kind: str) -> None:
    table({"id": "BIGINT", "v": "STRING"}, "id")
    body = tabular()[kind]
    assert post(shop, body, "refuse", kind).json()["errors"][0]["code"] == "unknown_column"
    answer = post(shop, body, "ignore", kind)
    assert answer.status_code == 202, answer.text
    assert (answer.json()["records"], answer.json()["ignoredColumns"]) == (2, [{"name": "nope", "records": 2}])
    assert shop.get(f"{T}/rows?key=2").json() == {"id": 2, "v": "b"}
    assert shop.get(f"{T}/batches/{answer.json()['id']}").json()["ignoredColumns"] == answer.json()["ignoredColumns"]
    assert post(shop, body, "ignore", kind).status_code == 202
    assert shop.get(f"{T}/stats").json()["ignoredColumns"] == [{"name": "nope", "records": 4}]
    assert types(shop) == {"id": "BIGINT NOT NULL", "v": "STRING"}


def test_ignored_columns_are_counted_up_to_a_hundred_names_and_other_faults_are_reported(
    table: Table, shop: TestClient
) -> None:
    table({"id": "BIGINT"}, "id")
    rows = [{"id": n} | ({"odd": n} if n % 2 else {}) for n in range(100)]
    assert post(shop, records(*rows), "ignore").json()["ignoredColumns"] == [{"name": "odd", "records": 50}]

    [fault] = post(shop, records({"id": "x", "nope": 1}), "ignore").json()["errors"]
    assert fault["pointer"] == "/records/0/id"

    row = {"id": 1} | {f"c{n}": n for n in range(300)}
    assert len(post(shop, records(row), "ignore").json()["ignoredColumns"]) == 100
    answer = post(shop, records(row), "add")
    assert answer.status_code == 400, answer.text
    assert answer.json()["errors"][0]["code"] == "too_many"
    assert types(shop) == {"id": "BIGINT NOT NULL"}


def test_what_to_do_with_columns_is_part_of_the_request(table: Table, shop: TestClient) -> None:
    table({"id": "BIGINT"}, "id")
    headers = {"Idempotency-Key": "k"}
    assert shop.post(f"{T}/batches?unknownColumns=ignore", json=records({"id": 1}), headers=headers).status_code == 202
    assert shop.post(f"{T}/batches?unknownColumns=add", json=records({"id": 1}), headers=headers).status_code == 422


def test_an_added_column_has_the_type_and_the_default_that_the_event_declares(table: Table, shop: TestClient) -> None:
    table(LINES, "order_id", "line_no", **PARTIAL)
    before = {"order_id": 90, "line_no": 1, "sku": "a", "qty": 1, "price": "1.00"}
    assert shop.post(f"{T}/batches", json=records(before)).status_code == 202
    answer = post(shop, capture("11"), "add", format="debezium-json")
    assert answer.status_code == 202, answer.text
    assert [change["action"] for change in answer.json()["changes"]] == ["addColumn", "updateColumnDefaultValue"]
    assert types(shop)["gift"] == "BOOLEAN"
    # As in PostgreSQL: rows that were there before show the default.
    assert shop.get(f"{T}/rows?key=90&key=1").json() == before | {"gift": False}
    again = post(shop, capture("11"), "add", format="debezium-json")
    assert (again.status_code, again.json()["changes"], again.json()["ignoredColumns"]) == (202, [], [])


DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}


@pytest.mark.parametrize(
    "field",
    [
        {"type": "int32", "name": "io.debezium.time.Date", "default": 2**31 - 1},
        {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "default": 2**63 - 1},
        DECIMAL | {"default": "AQ==", "parameters": {"scale": "-5000000000000"}},
        DECIMAL | {"parameters": {"scale": "²"}},
    ],
)
def test_a_default_that_no_column_can_hold_is_left_out(field: dict[str, Any], table: Table, shop: TestClient) -> None:
    table({"id": "BIGINT", "v": "INT"}, "id", **PARTIAL)
    fields = [{"type": "int64", "field": "id"}, {"optional": True, "field": "until", **field}]
    event = {"op": "c", "after": {"id": 1, "until": None}, "source": {"schema": "shop", "table": "order_lines"}}
    schema = {"fields": [{"field": "after", "fields": fields}]}
    answer = post(shop, {"schema": schema, "payload": event}, "add", format="debezium-json")
    assert answer.status_code == 202, answer.text
    assert [change["action"] for change in answer.json()["changes"]] == ["addColumn"]


def test_a_default_does_not_replace_nulls_that_are_sent(table: Table, shop: TestClient) -> None:
    """A table that keeps the last record applies defaults when it is written."""
    table(LINES, "order_id", "line_no", **SOURCE)
    answer = post(shop, capture("11"), "add", format="debezium-json")
    assert [change["action"] for change in answer.json()["changes"]] == ["addColumn"]


def test_a_wider_type_is_taken_as_alter_allows(table: Table, shop: TestClient, merge: Merge) -> None:
    table(LINES | {"gift": "BOOLEAN"}, "order_id", "line_no", **PARTIAL)
    line = {"order_id": 90, "line_no": 1, "sku": "a", "qty": 7, "price": "1.00"}
    assert shop.post(f"{T}/batches", json=records(line)).status_code == 202
    answer = post(shop, capture("12"), "add", format="debezium-json")
    assert answer.status_code == 202, answer.text
    assert types(shop)["qty"] == "BIGINT NOT NULL"
    sent = json.loads(capture("12"))["payload"]["after"]
    assert shop.get(f"{T}/rows?key={sent['order_id']}&key={sent['line_no']}").json()["qty"] == 3_000_000_000
    assert shop.get(f"{T}/rows?key=90&key=1").json()["qty"] == 7


def test_an_event_of_before_a_type_became_wider_may_come_after_one_of_then(table: Table, shop: TestClient) -> None:
    table({"id": "BIGINT", "n": "INT"}, "id")

    def event(key: int, kind: str, value: int) -> dict[str, Any]:
        fields = [{"field": name, "type": kind, "optional": True} for name in ("n", "more")]
        row = {"id": key, "n": value, "more": value}
        schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
        return {"schema": schema, "payload": {"op": "c", "before": None, "after": row}}

    body = [event(1, "int32", 1), event(2, "int64", 2**40), event(3, "int32", 3)]
    answer = post(shop, body, "add", format="debezium-json")
    assert answer.status_code == 202, answer.text
    assert types(shop) == {"id": "BIGINT NOT NULL", "n": "BIGINT", "more": "BIGINT"}
    assert shop.get(f"{T}/rows?key=2").json() == {"id": 2, "n": 2**40, "more": 2**40}


def test_a_value_that_no_wider_type_holds_is_refused_and_changes_nothing(table: Table, shop: TestClient) -> None:
    table({"id": "BIGINT", "n": "INT"}, "id")
    answer = post(shop, records({"id": 1, "n": 2**40, "more": 1}), "add")
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"] == "/records/0/n"
    assert types(shop) == {"id": "BIGINT NOT NULL", "n": "INT"}


SAID: dict[str, tuple[Any, Any]] = {
    "whole": (5, "BIGINT"),
    "text": ("red", "STRING"),
    "truth": (True, "BOOLEAN"),
    "instant": ("2026-01-01T00:00:00.5Z", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
    "day": ("2026-01-01", "DATE"),
    "list": (["a"], {"type": "ARRAY", "element": "STRING"}),
}


def test_without_a_declaration_the_values_say_the_type(table: Table, shop: TestClient) -> None:
    table({"id": "BIGINT"}, "id")
    row = {"id": 1} | {name: value for name, (value, _) in SAID.items()} | {"empty": None}
    answer = post(shop, records(row), "add")
    assert answer.status_code == 202, answer.text
    found = types(shop)
    assert {name: found[name] for name in SAID} == {name: of for name, (_, of) in SAID.items()}
    # Of nulls alone nobody knows the type: they say nothing that could be lost.
    assert answer.json()["ignoredColumns"] == [{"name": "empty", "records": 1}]
    assert "empty" not in found
    assert shop.get(f"{T}/rows?key=1").json() == {name: value for name, value in row.items() if name != "empty"}


def test_columns_are_added_from_json_only_and_under_names_that_columns_can_have(table: Table, shop: TestClient) -> None:
    table({"id": "BIGINT"}, "id")
    [fault] = post(shop, "id,more\n1,2\n", "add", "text/csv").json()["errors"]
    assert (fault["pointer"], fault["code"]) == ("/unknownColumns", "contradicting_parameters")

    answer = post(shop, records({"id": 1, "_kf_x": 1}), "add")
    assert (answer.status_code, answer.json()["errorCode"]) == (400, "invalid_schema")


def test_who_may_not_alter_adds_no_column(table: Table, shop: TestClient, app: FastAPI) -> None:
    table({"id": "BIGINT"}, "id")
    database = app.state.parts.database
    made = {role: f"Bearer {create_token(database, role, role, ['*'])}" for role in (Role.ADMIN, Role.WRITE)}
    of_many = {"tables": {"t": records({"id": 1, "m": 1})}}
    for url, body in ((f"{T}/batches", records({"id": 1, "more": 1})), (ALL, of_many)):
        for role, unknown, status in ((Role.WRITE, "add", 403), (Role.WRITE, "ignore", 202), (Role.ADMIN, "add", 202)):
            shop.headers["Authorization"] = made[role]
            answer = post(shop, body, unknown, url=url)
            assert answer.status_code == status, answer.text
    assert shop.get(T).json()["updatedBy"] == "admin"


def test_tables_of_one_request_get_their_columns_together_or_not_at_all(table: Table, shop: TestClient) -> None:
    for name in ("a", "b"):
        table({"id": "BIGINT"}, "id", name=name)
    good, bad = records({"id": 1, "more": 1}), records({"id": "x", "more": 1})
    assert post(shop, {"tables": {"a": good, "b": bad}}, "add", url=ALL).status_code == 400
    assert "more" not in types(shop, "a")
    answer = post(shop, {"tables": {"a": good, "b": good}}, "add", url=ALL)
    assert answer.status_code == 202, answer.text
    assert [len(batch["changes"]) for batch in answer.json()["batches"]] == [1, 1]
    assert types(shop, "a")["more"] == types(shop, "b")["more"] == "BIGINT"


def test_requests_that_add_the_same_column_at_once_all_count(table: Table, shop: TestClient) -> None:
    table({"id": "BIGINT"}, "id")
    answers: list[int] = []

    def send(number: int) -> None:
        answers.append(post(shop, records({"id": number, "more": number}), "add").status_code)

    threads = [threading.Thread(target=send, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [202] * 4
    assert types(shop) == {"id": "BIGINT NOT NULL", "more": "BIGINT"}
    rows = [json.loads(line) for line in shop.get(f"{T}/rows:scan?consistency=latest").text.splitlines()]
    assert len(shop.get(f"{T}/batches").json()["batches"]) == 4
    assert all(row["more"] == row["id"] for row in rows)
