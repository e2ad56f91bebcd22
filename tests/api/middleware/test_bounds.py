"""Bounds of the catalog over HTTP: refused by name, and nothing is stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.core.table.schema_bounds import MOST_OPTIONS
from app.main import create_app
from tests.api.conftest import DATABASES, LOOPBACK, TABLES, new_table
from tests.builders import settings_with

SIMULATE = "/v1/catalog/merges:simulate"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service whose tables have at most four columns, and that has room for two of them."""
    folder: Path = tmp_path_factory.mktemp("small")
    settings = settings_with(KEYFOLD_DATA=folder, workers=0, max_columns=4, max_tables=2, max_databases=1)
    with TestClient(create_app(settings), LOOPBACK, raise_server_exceptions=False) as client:
        assert client.post(DATABASES, json={"name": "shop"}).status_code == 200
        assert client.post(TABLES, json=new_table("four", **wide(4))).status_code == 200
        yield client


def wide(columns: int) -> dict[str, Any]:
    return {"fields": [{"name": f"c{number}", "type": "INT"} for number in range(columns)], "primaryKeys": ["c0"]}


def refused(answer: Any, status: int, code: str) -> dict[str, Any]:
    reported: dict[str, Any] = answer.json()
    assert (answer.status_code, [fault["code"] for fault in reported["errors"]]) == (status, [code])
    assert reported["errors"][0]["fix"]
    return reported


@pytest.mark.parametrize("query", ["", "?validateOnly=true"])
def test_a_table_of_too_many_columns_is_refused(small: TestClient, query: str) -> None:
    reported = refused(small.post(f"{TABLES}{query}", json=new_table("five", **wide(5))), 400, "too_many")
    assert reported["errors"][0]["pointer"] == "/schema/fields"
    assert "at most 4 columns" in reported["message"]
    assert small.get(TABLES).json()["tables"] == ["four"]


def test_so_is_one_that_is_simulated(small: TestClient) -> None:
    refused(small.post(SIMULATE, json={"schema": wide(5), "records": []}), 400, "too_many")


def test_a_table_cannot_be_altered_beyond_its_bounds(small: TestClient) -> None:
    change = {"action": "addColumn", "fieldNames": ["more"], "dataType": "INT"}
    reported = refused(small.post(f"{TABLES}/four", json={"changes": [change]}), 400, "too_many")
    assert reported["errors"][0]["pointer"] == "/changes"
    drop = {"action": "dropColumn", "fieldNames": ["c3"]}
    assert small.post(f"{TABLES}/four?validateOnly=true", json={"changes": [drop, change]}).status_code == 200


def test_a_request_of_too_many_parameters_is_refused_before_they_are_looked_at(small: TestClient) -> None:
    reported = refused(small.get(f"{TABLES}/four/files?" + "&".join(["maxResults=1"] * 301)), 400, "too_many")
    assert "300 query parameters" in reported["message"]
    assert small.get(f"{TABLES}/four/files?" + "&".join(["maxResults=1"] * 300)).status_code == 200
    refused(small.get(f"{TABLES}/four?" + "&".join(f"x{number}" for number in range(5000))), 400, "too_many")


def test_a_full_catalog_takes_no_more_databases_and_tables(small: TestClient) -> None:
    assert small.post(TABLES, json=new_table("second", **wide(2))).status_code == 200
    for url, body in ((TABLES, new_table("third", **wide(2))), (DATABASES, {"name": "other"})):
        reported = refused(small.post(url, json=body), 409, "too_many")
        assert reported["errorCode"] == "catalog_full"
    assert small.delete(f"{TABLES}/second").status_code == 200
    assert small.post(TABLES, json=new_table("third", **wide(2))).status_code == 200
    assert small.delete(f"{TABLES}/third").status_code == 200


def test_options_of_a_database_are_bounded_as_a_whole(shop: TestClient) -> None:
    url = f"{DATABASES}/shop"
    refused(shop.post(url, json={"updates": {str(number): "" for number in range(MOST_OPTIONS + 1)}}), 400, "too_many")
    for number in range(11):
        answer = shop.post(url, json={"updates": {str(number): "x" * 100_000}})
    refused(answer, 400, "too_long")
    assert len(shop.get(url).json()["options"]) == 10
    assert shop.post(url, json={"removals": ["0"], "updates": {"10": "x" * 100_000}}).status_code == 200


def test_ids_of_dropped_columns_do_not_come_again_whatever_came_between(shop: TestClient, wide: object) -> None:
    add = {"action": "addColumn", "fieldNames": ["more"], "dataType": "ROW<a INT, b INT>"}
    drop = {"action": "dropColumn", "fieldNames": ["more"]}
    ids = []
    for _ in range(3):
        added = shop.post(f"{TABLES}/wide", json={"changes": [add]}).json()["schema"]["fields"][-1]
        ids += [added["id"], *(field["id"] for field in added["type"]["fields"])]
        assert shop.post(f"{TABLES}/wide", json={"changes": [drop]}).status_code == 200
    assert ids == [*range(2, 11)]
