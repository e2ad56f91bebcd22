"""Numbers over HTTP: however they are written they are taken, and they are answered in one form."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from tests.api.conftest import TABLES, Create, Merge, fields_of, new_table

WIDE = f"{TABLES}/wide"
COLUMNS = {"id": "DOUBLE", "f": "FLOAT", "d": "DOUBLE", "n": "BIGINT", "p": "DECIMAL(5, 2)", "fs": "ARRAY<FLOAT>"}
FIELDS = fields_of(**COLUMNS)
FIELDS[2]["defaultValue"] = "-Infinity"
SENT = (
    '{"records": [{"id": "NaN", "f": 0.1, "d": "1e3", "n": 5.0, "p": "1.50", "fs": ["NaN", 0.3]},'
    ' {"id": "-Infinity", "f": "0.1", "d": "Infinity", "n": "1e3", "p": 15e-1, "fs": null},'
    ' {"id": 1e3, "f": "-Infinity", "d": null, "n": "5.0", "p": "2", "fs": []}]}'
)
ROWS = [
    {"id": "NaN", "f": 0.1, "d": 1000.0, "n": 5, "p": "1.50", "fs": ["NaN", 0.3]},
    {"id": "-Infinity", "f": 0.1, "d": "Infinity", "n": 1000, "p": "1.50", "fs": None},
    {"id": 1000.0, "f": "-Infinity", "d": "-Infinity", "n": 5, "p": "2.00", "fs": []},
]
KEYS = [("NaN", "NaN"), ("-Infinity", "-Infinity"), ("1e3", "1000"), ("1000.0", 1000)]


@pytest.fixture
def wide(create: Create, shop: TestClient) -> TestClient:
    """A client of a catalog with the table ``wide``, in which the records of ``SENT`` are staged."""
    create(fields=FIELDS, options={"changelog-producer": "lookup", "changelog-producer.row-deduplicate": "true"})
    answer = shop.post(f"{WIDE}/batches", content=SENT, headers={"content-type": "application/json"})
    assert answer.status_code == 202, answer.text
    return shop


def found(client: TestClient, text: str, consistency: str) -> Any:
    answer = client.get(f"{WIDE}/rows", params={"key": text, "consistency": consistency})
    assert answer.status_code == 200, answer.text
    return answer.json()


def found_in_arrow(client: TestClient) -> list[Any]:
    """Of each of ``KEYS`` the decimal of its row as Arrow, each key asked for twice: NaN is found, too."""
    body = {"keys": [{"id": key} for _, key in KEYS] * 2}
    answer = client.post(f"{WIDE}/rows:batchGet", json=body, headers={"Accept": "application/vnd.apache.arrow.stream"})
    rows = pa.ipc.open_stream(answer.content).read_all().to_pylist()
    assert all(row["_kf_found"] for row in rows)
    return [str(row["p"]) for row in rows]


def test_rows_are_found_and_answered_whatever_the_numbers_are(wide: TestClient, merge: Merge) -> None:
    expected = [*ROWS, ROWS[2]]
    assert [found(wide, text, "latest") for text, _ in KEYS] == expected
    in_arrow = [row["p"] for row in expected] * 2
    assert found_in_arrow(wide) == in_arrow
    merge()
    assert [found(wide, text, "merged") for text, _ in KEYS] == expected
    keys = [{"id": key} for _, key in KEYS]
    answered = wide.post(f"{WIDE}/rows:batchGet", json={"keys": keys}).json()["rows"]
    assert [one["row"] for one in answered] == expected
    assert found_in_arrow(wide) == in_arrow
    changes = [json.loads(line) for line in wide.get(f"{WIDE}/changelog").text.splitlines()]
    assert sorted(({k: v for k, v in change.items() if k[0] != "_"} for change in changes), key=str) == sorted(
        ROWS, key=str
    )


def test_simulated_rows_and_reasons_have_the_same_form(shop: TestClient) -> None:
    fields = fields_of(id="INT", f="FLOAT")
    schema = new_table(fields=fields, options={"sequence.field": "f"})["schema"]
    records = [{"id": "1", "f": "0.3"}, {"id": 1.0, "f": 0.1}, {"id": 1, "f": "NaN"}]
    answer = shop.post("/v1/catalog/merges:simulate", json={"schema": schema, "records": records})
    (row,) = answer.json()["rows"]
    assert row["after"] == {"id": 1, "f": "NaN"}
    assert [step["after"]["f"] for step in row["steps"]] == [0.3, 0.3, "NaN"]
    assert row["steps"][1]["columns"][0]["reason"] == "sequence 0.1 < 0.3: ignored"
