"""A null in a column of each function leaves the service as null, whichever way it goes."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
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

ARROW = "application/vnd.apache.arrow.stream"


def answered(client: TestClient, url: str, accept: str = "*/*") -> Any:
    answer = client.get(url, headers={"Accept": accept})
    assert answer.status_code == 200, answer.text
    return answer


def in_lines(client: TestClient, url: str) -> Any:
    """The value of the row in lines of JSON."""
    lines = answered(client, url, "application/x-ndjson").text.splitlines()
    return next(row["v"] for row in map(json.loads, lines) if row.get("id") == 2)


def in_csv(client: TestClient, url: str) -> Any:
    lines = answered(client, url, "text/csv").text.splitlines()
    return next(line.split(",")[1] for line in lines if line.startswith("2,")) or None


def in_arrow(client: TestClient, url: str) -> Any:
    rows = pa.ipc.open_stream(io.BytesIO(answered(client, url, ARROW).content)).read_all().to_pylist()
    return next(row["v"] for row in rows if row["id"] == 2)


def in_many(client: TestClient, url: str) -> Any:
    return client.post(url, json={"keys": [{"id": 2}]}).json()["rows"][0]["row"]["v"]


# How each route of a table answers the value of the column ``v`` of key 2.
WAYS: list[tuple[str, Callable[[TestClient, str], Any]]] = [
    ("rows?key=2", lambda client, url: answered(client, url).json()["v"]),
    ("rows:batchGet", in_many),
    ("rows:scan", in_lines),
    ("rows:scan", in_csv),
    ("rows:scan", in_arrow),
    ("rows:scan?filter=id.eq.2", in_lines),
    ("rows:explain?key=2", lambda client, url: answered(client, url).json()["row"]["v"]),
    ("changelog?fromSnapshot=1", in_lines),
]


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
        for route, read in WAYS:
            assert read(shop, f"{TABLES}/{function}/{route}") is None, (route, compacted)
        assert '"id":2' in answered(shop, f"{TABLES}/{function}/merges/{merge.id}/changes").text.replace(" ", "")
