"""A null in a column of each function leaves the service as null, whichever way it goes."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import pyarrow as pa
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.core.functions.entries import FUNCTIONS
from tests.api.conftest import TABLES, Create, fields_of
from tests.api.routes.merging.test_compactions import site_of
from tests.histories import FUNCTION_TYPES
from tests.oracle_sketches import VALUES
from tests.services.builders import compact, merge_staged

WAYS = ("rows", "batchGet", "scan ndjson", "scan csv", "scan arrow", "filter", "explain", "changes", "changelog")


def read(client: TestClient, table: str, merge_id: str, way: str) -> Any:
    """The value of column ``v`` of key 2, which is null, by one of the ways."""
    path = f"{TABLES}/{table}"
    match way:
        case "rows":
            return client.get(f"{path}/rows?key=2").json()["v"]
        case "batchGet":
            return client.post(f"{path}/rows:batchGet", json={"keys": [{"id": 2}]}).json()["rows"][0]["row"]["v"]
        case "scan ndjson":
            lines = client.get(f"{path}/rows:scan", headers={"Accept": "application/x-ndjson"}).text.splitlines()
            return next(row["v"] for row in map(json.loads, lines) if row["id"] == 2)
        case "scan csv":
            lines = client.get(f"{path}/rows:scan", headers={"Accept": "text/csv"}).text.splitlines()
            return next(line.split(",")[1] for line in lines if line.startswith("2,")) or None
        case "scan arrow":
            kind = "application/vnd.apache.arrow.stream"
            stream = client.get(f"{path}/rows:scan", headers={"Accept": kind})
            assert stream.status_code == 200, stream.text
            rows = pa.ipc.open_stream(io.BytesIO(stream.content)).read_all().to_pylist()
            return next(row["v"] for row in rows if row["id"] == 2)
        case "filter":
            answer = client.get(f"{path}/rows:scan?filter=id.eq.2")
            assert answer.status_code == 200, answer.text
            return json.loads(answer.text.splitlines()[0])["v"]
        case "explain":
            answer = client.get(f"{path}/rows:explain?key=2")
            assert answer.status_code == 200, answer.text
            return answer.json()["row"]["v"]
        case "changes":
            answer = client.get(f"{path}/merges/{merge_id}/changes")
            assert answer.status_code == 200, answer.text
            assert '"id":2' in answer.text.replace(" ", "")
            return None
        case _:
            answer = client.get(f"{path}/changelog?fromSnapshot=1")
            assert answer.status_code == 200, answer.text
            return next(row["v"] for row in map(json.loads, answer.text.splitlines()) if row.get("id") == 2)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_nulls_of_every_function_stay_null(function: str, app: FastAPI, create: Create, shop: TestClient) -> None:
    kind = FUNCTION_TYPES[function][0]
    value = base64.b64encode(next(one for one in VALUES[function] if one)).decode() if function in VALUES else None
    nested = {"fields.v.nested-key": "id"} if function == "nested_partial_update" else {}
    options = nested | {
        "merge-engine": "aggregation",
        "changelog-producer": "lookup",
        "fields.v.aggregate-function": function,
    }
    fields = fields_of(id="INT", v=kind)
    create(function, fields=fields, primaryKeys=["id"], options=options | nested)
    posted = shop.post(f"{TABLES}/{function}/batches", json={"records": [{"id": 1, "v": value}, {"id": 2, "v": None}]})
    assert posted.status_code == 202, posted.text
    site = site_of(app)
    with site.database.reading() as repository:
        table = repository.tables.get("shop", function)
    merge = merge_staged(site.database, site.warehouse, table.id)
    for compacted in (False, True):
        if compacted:
            compact(site, table)
        for way in WAYS:
            assert read(shop, function, merge.id, way) is None, (way, compacted)
