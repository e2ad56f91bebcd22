"""One request, one transaction: counted on every route of the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.shared.deps import Parts
from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.services.batches.group_commit import GroupCommit
from tests.api.conftest import TABLES, fields_of, new_table
from tests.api.walk import BODIES, DOCUMENT, LAST, OPERATIONS, TABLE, Fill, filled_catalog, query
from tests.services.builders import merge_staged

# Routes that need none, or more than one, and why.
NONE: Mapping[str, str] = {
    "getConfig": "it says nothing of the catalog",
    "getHealth": "it must answer while the catalog does not",
    "getReadiness": "it asks the database itself, no repository",
    "simulateMerge": "its table is in the request",
    "validateTable": "the same",
    "validateDdl": "the same",
    **dict.fromkeys(
        ("getRow", "getRowByPath", "batchGetRows", "scanRows", "countRows"),
        "views ask, once after each commit (tests/services/rows/test_views.py)",
    ),
    **dict.fromkeys(("getTable", "getTableDdl", "getRules"), "the view of lookups has the table"),
}
_STAGING = (2, "a look at the schema, then the commit: decoding and writing the file hold no lock")
SEVERAL: Mapping[str, tuple[int, str]] = {
    **dict.fromkeys(
        ("postBatch", "postDatabaseBatches", "putRow", "putRowByPath", "deleteRow", "deleteRowByPath"), _STAGING
    ),
    "retrySetAsideEvents": (3, "a look at the events, then as a batch is staged"),
    **dict.fromkeys(
        ("explainRow", "explainRowByPath"), (2, "the row and what is kept, then its batches: no files are read in one")
    ),
    "dropPartitions": (3, "a look at the table, one at its partitions, the commit: the last two again if they must"),
    "getChangelog": (3, "one for the table and its snapshots, one for each snapshot: reading files holds none"),
}
INSTEAD = {"dropPartitions": "days", "dropTable": "renamed"}  # of the table wide
DAYS = new_table(
    "days", fields=fields_of(id="INT NOT NULL", day="DATE NOT NULL"), partitionKeys=["day"], primaryKeys=["id", "day"]
)


class CountingCatalog(CatalogDatabase):
    """A catalog that counts its transactions."""

    count = 0

    @contextmanager
    def transaction(self, *, wakes: bool = True) -> Iterator[Repository]:
        self.count += 1
        with super().transaction(wakes=wakes) as repository:
            yield repository

    @contextmanager
    def reading(self) -> Iterator[Repository]:
        self.count += 1
        with super().reading() as repository:
            yield repository


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[tuple[TestClient, Fill, CountingCatalog]]:
    with filled_catalog(tmp_path) as (client, fill):
        app = client.app
        assert isinstance(app, FastAPI)
        parts: Parts = app.state.parts
        days = client.post(TABLES, json=DAYS).json()["id"]
        client.post(f"{TABLES}/days/batches", json={"records": [{"id": 1, "day": "2026-01-01"}]})
        merge_staged(parts.database, parts.warehouse, days)
        catalog = CountingCatalog(parts.settings.catalog_url)
        app.state.parts = replace(parts, database=catalog, commits=GroupCommit(catalog, parts.warehouse))
        yield client, fill, catalog
        app.state.parts = parts
        catalog.close()


def expected(operation: str) -> int:
    return 0 if operation in NONE else SEVERAL.get(operation, (1, ""))[0]


def test_a_request_has_one_transaction_unless_a_reason_is_given(
    counted: tuple[TestClient, Fill, CountingCatalog],
) -> None:
    client, fill, catalog = counted
    found: dict[str, int] = {}
    for path, method in sorted(OPERATIONS, key=lambda one: _place(DOCUMENT[one[0]][one[1]]["operationId"])):
        operation = DOCUMENT[path][method]["operationId"]
        where = fill(path).replace("wide", INSTEAD.get(operation, "wide"))
        catalog.count = 0
        answer = client.request(method, where, params=query(path), json=BODIES.get(operation))
        found[operation] = catalog.count
        # Conflicts of a table that is merged already; readiness without Spark.
        assert answer.status_code in (200, 202, 409, 503), (operation, answer.text)
    assert found == {operation: expected(operation) for operation in found}
    assert NONE.keys() | SEVERAL.keys() <= found.keys()


def _place(operation: str) -> int:
    return LAST.index(operation) + 1 if operation in LAST else 0


def test_a_missing_table_costs_one_transaction(counted: tuple[TestClient, Fill, CountingCatalog]) -> None:
    client, _, catalog = counted
    for name in ("batches", "merges", "snapshots", "changelog", "stats"):
        catalog.count = 0
        assert client.get(f"{TABLE}x/{name}").status_code == 404
        assert catalog.count == 1, name
