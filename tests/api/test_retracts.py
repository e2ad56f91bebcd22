"""What a retract has to bring, and what becomes of records without a sequence."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from tests.api.conftest import TABLES, Create, fields_of

T = f"{TABLES}/wide"
FIELDS = fields_of(id="BIGINT", ts="INT", note="STRING NOT NULL", n="INT NOT NULL")
SEQUENCE = {"sequence.field": "ts"}
SUM = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}


def arrow(records: list[dict[str, Any]]) -> bytes:
    kinds = {"id": pa.int64(), "ts": pa.int32(), "note": pa.string(), "n": pa.int32(), "_kind": pa.string()}
    names = [name for name in kinds if any(name in record for record in records)]
    schema = pa.schema([(name, kinds[name]) for name in names])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(pa.Table.from_pylist(records, schema=schema))
    return sink.getvalue()


BODIES: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "application/json": lambda records: json.dumps({"records": records}).encode(),
    "application/x-ndjson": lambda records: "\n".join(map(json.dumps, records)).encode(),
    "application/vnd.apache.arrow.stream": arrow,
}


def post(shop: TestClient, records: list[dict[str, Any]], kind: str = "application/json") -> Any:
    return shop.post(f"{T}/batches", content=BODIES[kind](records), headers={"Content-Type": kind})


@pytest.mark.parametrize("kind", BODIES)
def test_a_delete_with_the_key_alone_removes_a_row(kind: str, create: Create, shop: TestClient) -> None:
    create(fields=FIELDS, primaryKeys=["id"])
    assert post(shop, [{"id": 1, "note": "a", "n": 1}, {"id": 2, "note": "b", "n": 2}]).status_code == 202
    answer = post(shop, [{"id": 1, "_kind": "-D"}], kind)
    assert answer.status_code == 202, answer.text
    assert shop.get(f"{T}/rows?key=1").status_code == 404
    assert shop.get(f"{T}/rows?key=2").json()["note"] == "b"
    assert shop.delete(f"{T}/rows/2").status_code == 202
    assert shop.get(f"{T}/rows?key=2").status_code == 404


@pytest.mark.parametrize("kind", BODIES)
def test_adds_need_what_is_not_null_and_retracts_what_is_taken_back(
    kind: str, create: Create, shop: TestClient
) -> None:
    create(fields=FIELDS, primaryKeys=["id"], options=SUM)
    gone, taken_back = {"id": 1, "_kind": "-D", "note": "x"}, {"id": 1, "_kind": "-U", "n": 2}
    faults = post(shop, [gone, taken_back, {"id": 2, "note": "b"}], kind).json()["errors"]
    assert [fault["pointer"] for fault in faults] == ["/records/0/n", "/records/2/n"]


def test_a_change_of_one_row_without_its_sequence_is_refused_with_the_fix(create: Create, shop: TestClient) -> None:
    create(fields=FIELDS, primaryKeys=["id"], options=SEQUENCE)
    assert post(shop, [{"id": 1, "ts": 5, "note": "a", "n": 1}]).json()["warnings"] == []
    for refused in (shop.delete(f"{T}/rows/1"), shop.put(f"{T}/rows/1", json={"note": "b", "n": 2})):
        assert refused.status_code == 400
        [fault] = refused.json()["errors"]
        assert (fault["pointer"], fault["fix"]) == ("/ts", "add sequence=<value of ts> to the query, or ts to the body")
    assert shop.put(f"{T}/rows/1?sequence=6", json={"note": "b", "n": 2}).status_code == 202
    assert shop.get(f"{T}/rows?key=1").json()["note"] == "b"
    assert shop.delete(f"{T}/rows?key=1&sequence=six").json()["errors"][0]["pointer"] == "/sequence"
    assert shop.delete(f"{T}/rows?key=1&sequence=7&sequence=8").status_code == 400
    assert shop.delete(f"{T}/rows?key=1&sequence=7").status_code == 202
    assert shop.get(f"{T}/rows?key=1").status_code == 404


@pytest.mark.parametrize("kind", BODIES)
def test_a_batch_says_how_many_of_its_records_have_no_sequence(kind: str, create: Create, shop: TestClient) -> None:
    create(fields=FIELDS, primaryKeys=["id"], options=SEQUENCE)
    records = [{"id": 1, "ts": 1, "note": "a", "n": 1}, {"id": 2, "note": "b", "n": 1}, {"id": 1, "_kind": "-D"}]
    [warning] = post(shop, records, kind).json()["warnings"]
    assert (warning["code"], warning["count"]) == ("records_without_sequence", 2)
    assert shop.get(f"{T}/rows?key=1").json()["note"] == "a"
