"""``record.absent-columns`` over HTTP: what a record does not name stays, by whatever format it comes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from tests.api.conftest import TABLES, Create, fields_of

TABLE = f"{TABLES}/wide"
FIELDS = fields_of(id="BIGINT", edited="STRING", status="STRING", city="STRING", total="INT")
PARTIAL = {"merge-engine": "partial-update", "fields.edited.sequence-group": "status,city"}
TELLING = {**PARTIAL, "record.absent-columns": "unchanged"}
Records = list[dict[str, Any]]
# Four records of one key: each batch names other columns.
FIRST: Records = [{"id": 7, "edited": "10:00", "status": "paid", "city": "Bonn", "total": 5}]
PACKED: Records = [{"id": 7, "edited": "10:05", "status": "packed"}]
CLEARED: Records = [{"id": 7, "edited": "10:04", "city": None, "total": None}]
LATE: Records = [{"id": 7, "edited": "10:03", "status": "late", "city": "Kiel"}]
ROW = {"id": 7, "edited": "10:05", "status": "packed", "city": None, "total": None}


def ndjson(records: Records) -> bytes:
    return b"\n".join(json.dumps(record).encode() for record in records)


def csv(records: Records) -> bytes:
    lines = [",".join(records[0]), *(",".join(str(v) if v is not None else "" for v in r.values()) for r in records)]
    return "\r\n".join(lines).encode()


def arrow(records: Records) -> bytes:
    table, sink = _table(records), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def parquet(records: Records) -> bytes:
    sink = io.BytesIO()
    pq.write_table(_table(records), sink)
    return sink.getvalue()


def _table(records: Records) -> pa.Table:
    types = {"id": pa.int64(), "total": pa.int32()}
    return pa.table(
        {name: pa.array([record[name] for record in records], types.get(name, pa.string())) for name in records[0]}
    )


FORMATS: dict[str, Callable[[Records], bytes]] = {
    "application/json": lambda records: json.dumps({"records": records}).encode(),
    "application/x-ndjson": ndjson,
    "text/csv": csv,
    "application/vnd.apache.arrow.stream": arrow,
    "application/vnd.apache.parquet": parquet,
}


def row(client: TestClient, key: int = 7) -> Any:
    return client.get(f"{TABLE}/rows/{key}").json()


@pytest.mark.parametrize("media_type", FORMATS)
def test_records_of_every_format_leave_what_they_do_not_name(create: Create, shop: TestClient, media_type: str) -> None:
    create(fields=FIELDS, options=TELLING)
    for records in (FIRST, PACKED, CLEARED, LATE):
        body = FORMATS[media_type](records)
        answer = shop.post(f"{TABLE}/batches", content=body, headers={"Content-Type": media_type})
        assert answer.status_code == 202, answer.text
    assert row(shop) == ROW


def test_records_of_one_body_each_name_their_own_columns(create: Create, shop: TestClient) -> None:
    create(fields=FIELDS, options=TELLING)
    assert shop.post(f"{TABLE}/batches", json={"records": FIRST + PACKED + CLEARED + LATE}).status_code == 202
    assert row(shop) == ROW


def test_without_the_option_what_is_left_out_is_null_as_in_paimon(create: Create, shop: TestClient) -> None:
    create(fields=FIELDS, options=PARTIAL)
    for records in (FIRST, PACKED, CLEARED, LATE):
        shop.post(f"{TABLE}/batches", json={"records": records})
    assert row(shop) == {**ROW, "city": None, "total": 5}


def test_a_simulation_and_the_rules_tell_what_is_not_named_and_what_is_named_null(
    create: Create, shop: TestClient
) -> None:
    create(fields=FIELDS, options=TELLING)
    answer = shop.post(f"{TABLE}/rows:simulate", json={"records": FIRST + PACKED + CLEARED + LATE})
    steps = answer.json()["rows"][0]["steps"]
    reasons = [{column["column"]: column["reason"] for column in step["columns"]} for step in steps]
    assert reasons[1]["city"] == "city not named: unchanged"
    assert reasons[1]["total"] == "total not named: unchanged"
    assert reasons[2]["city"] == "sequence 10:04 >= 10:00: named null: cleared"
    assert reasons[2]["total"] == "named null: cleared"
    assert reasons[3]["status"] == "sequence 10:03 < 10:05: ignored"
    assert answer.json()["rows"][0]["after"] == ROW

    rules = {column["column"]: column["rule"] for column in shop.get(f"{TABLE}/rules").json()["columns"]}
    assert rules["city"].startswith("the value of the latest record that names it, null included, by edited")
    assert rules["total"] == "the value of the latest record that names it, null included, by arrival"


def test_a_column_that_is_added_later_is_one_that_nobody_named(create: Create, shop: TestClient) -> None:
    create(fields=FIELDS, options={**TELLING, "sequence.field": "edited", "fields.edited.sequence-group": "status"})
    shop.post(f"{TABLE}/batches", json={"records": FIRST})
    change = {"action": "addColumn", "fieldNames": ["note"], "dataType": "STRING"}
    assert shop.post(TABLE, json={"changes": [change]}).status_code == 200
    shop.post(f"{TABLE}/batches", json={"records": [{"id": 7, "edited": "09:00", "note": "older, and yet the first"}]})
    assert row(shop)["note"] == "older, and yet the first"


def test_an_empty_field_of_csv_is_null_or_on_demand_absent_and_no_format_is_taken_with_it(
    create: Create, shop: TestClient
) -> None:
    create(fields=FIELDS, options=TELLING)
    csv_body = {"headers": {"Content-Type": "text/csv"}, "content": b'id,edited,status,city,total\n7,10:05,"",,\n'}
    shop.post(f"{TABLE}/batches", json={"records": FIRST})
    assert shop.post(f"{TABLE}/batches?emptyFields=absent", **csv_body).status_code == 202
    assert row(shop) == {"id": 7, "edited": "10:05", "status": "", "city": "Bonn", "total": 5}
    assert shop.post(f"{TABLE}/batches", **csv_body).status_code == 202
    assert row(shop) == {"id": 7, "edited": "10:05", "status": "", "city": None, "total": None}

    headers = {"Content-Type": "text/csv"}
    answer = shop.post(f"{TABLE}/batches?emptyFields=absent&format=debezium-json", content=b"id\n1\n", headers=headers)
    assert answer.json()["errors"][0]["pointer"] == "/format"


@pytest.mark.parametrize(("options", "media_type"), [(PARTIAL, "text/csv"), (TELLING, "application/json")])
def test_empty_fields_are_absent_only_where_there_are_fields_and_columns_can_be_left_alone(
    create: Create, shop: TestClient, options: dict[str, str], media_type: str
) -> None:
    create(fields=FIELDS, options=options)
    body = FORMATS[media_type](FIRST)
    answer = shop.post(f"{TABLE}/batches?emptyFields=absent", content=body, headers={"Content-Type": media_type})
    assert answer.status_code == 400
    [fault] = answer.json()["errors"]
    assert (fault["pointer"], fault["code"]) == ("/emptyFields", "contradicting_parameters")
    assert fault["fix"]


STRICT = [*FIELDS[:3], {"name": "city", "type": "STRING NOT NULL"}, {"name": "total", "type": "INT NOT NULL"}]
DEFAULTED = {**TELLING, "fields.total.default-value": "0"}


def post(client: TestClient, *records: dict[str, Any]) -> Any:
    answer = client.post(f"{TABLE}/batches", json={"records": list(records)})
    if answer.status_code == 202:
        return 202
    return answer.status_code, [(fault["pointer"], fault["code"]) for fault in answer.json()["errors"]]


def test_the_first_record_of_a_key_names_what_may_not_be_null_in_a_patch_a_simulation_and_a_batch(
    create: Create, shop: TestClient
) -> None:
    create(fields=STRICT, options=DEFAULTED)
    answer = shop.patch(f"{TABLE}/rows/7", json={"status": "new"})
    assert [(fault["pointer"], fault.get("row")) for fault in answer.json()["errors"]] == [("/city", None)]

    part = {"records": [{"id": 1, "status": "new"}]}
    assert shop.post(f"{TABLE}/rows:simulate", json=part).json()["errors"][0]["code"] == "missing_column"
    post(shop, {"id": 1, "city": "Bonn"})
    assert shop.post(f"{TABLE}/rows:simulate", json=part).status_code == 200

    packed = PACKED[0]
    assert post(shop, packed) == (400, [("/records/0/city", "missing_column")])
    assert post(shop, {**packed, "city": None}) == (400, [("/records/0/city", "null_in_not_null")])
    assert post(shop, {**packed, "city": "Bonn"}) == 202
    assert post(shop, packed) == 202
    assert row(shop) == {"id": 7, "edited": "10:05", "status": "packed", "city": "Bonn", "total": 0}
    assert post(shop, {"id": 8, "edited": "10:00", "city": "Oslo"}, {**packed, "id": 8}) == 202
    missing = 400, [("/records/0/city", "missing_column")]
    assert post(shop, {"id": 9, "status": "new"}, {"id": 9, "city": "Rome"}) == missing
    assert post(shop, {"id": 9, "edited": "10:00", "_kind": "-D"}) == 202


def test_a_row_that_the_same_body_deletes_is_not_there_any_more(create: Create, shop: TestClient) -> None:
    removing = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
    create(fields=STRICT, options=removing | {"record.absent-columns": "unchanged", "fields.total.default-value": "0"})
    whole, part, gone = {"id": 1, "city": "Bonn"}, {"id": 1, "status": "new"}, {"id": 1, "_kind": "-D"}
    assert post(shop, whole, part, gone, part) == (400, [("/records/3/city", "missing_column")])
    assert post(shop, whole, part, gone, whole, part) == 202
    assert post(shop, gone, part) == (400, [("/records/1/city", "missing_column")])


def test_a_total_out_of_range_keeps_nobody_from_bringing_it_back(create: Create, shop: TestClient) -> None:
    fields = fields_of(id="BIGINT", n="INT", c="INT NOT NULL")
    aggregated = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    create(fields=fields, options={**aggregated, "record.absent-columns": "unchanged"})
    assert post(shop, {"id": 1, "n": 2147483647, "c": 1}, {"id": 1, "n": 9, "c": 1}) == 202
    assert post(shop, {"id": 1, "n": -9}) == 202
    assert row(shop, 1) == {"id": 1, "n": 2147483647, "c": 1}
