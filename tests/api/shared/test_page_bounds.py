"""Pages end before they are too large, and the next one goes on where they ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.shared.deps import Parts
from app.services.shared.pages import MOST_PAGE_BYTES
from app.services.snapshots.changelogs import MOST_BYTES
from tests.api.conftest import DATABASES, TABLES, Merge, new_table
from tests.services.builders import schema

CHANGES = f"{TABLES}/wide/changelog"
LARGE = 2**20
MANY = MOST_BYTES // LARGE + 8


@pytest.fixture
def changed(shop: TestClient, merge: Merge) -> TestClient:
    """A table whose one snapshot brought more than a page of changes, of a MiB each."""
    shop.post(TABLES, json=new_table(options={"merge.max-staleness": "1 d"}))
    merge(*({"id": number, "note": "x" * LARGE} for number in range(MANY)))
    return shop


def pages(client: TestClient, accept: str) -> list[Any]:
    found, query = [], {"maxResults": "10000"}
    while True:
        found.append(client.get(CHANGES, params=query, headers={"Accept": accept}))
        assert found[-1].status_code == 200
        if "next-page-token" not in found[-1].headers:
            return found
        query["pageToken"] = found[-1].headers["next-page-token"]


@pytest.mark.slow(reason="writes and reads rows as large as they may be")
def test_a_page_of_a_changelog_ends_before_it_is_too_large(changed: TestClient) -> None:
    reported = pages(changed, "application/x-ndjson")
    assert max(len(page.content) for page in reported) <= MOST_BYTES + 2 * LARGE
    assert [len(page.text.splitlines()) for page in reported] == [MOST_BYTES // LARGE, 8]
    arrow = [
        pa.ipc.open_stream(page.content).read_all() for page in pages(changed, "application/vnd.apache.arrow.stream")
    ]
    assert sorted(one for page in arrow for one in page.column("id").to_pylist()) == [*range(MANY)]
    assert len(arrow) == 2


def test_a_page_of_tables_ends_before_their_schemas_are_too_large(app: FastAPI, shop: TestClient) -> None:
    wide = replace(schema(), comment="x" * (MOST_PAGE_BYTES // 5 * 2))
    parts: Parts = app.state.parts
    with parts.database.transaction() as repository:
        for number in range(5):
            repository.tables.create("shop", f"t{number}", wide)
    url, found, token = f"{DATABASES}/shop/table-details", [], None
    while True:
        page = shop.get(url, params={} if token is None else {"pageToken": token}).json()
        found.append([table["name"] for table in page["tableDetails"]])
        token = page["nextPageToken"]
        if token is None:
            break
    assert found == [["t0", "t1"], ["t2", "t3"], ["t4"]]
    assert shop.get(TABLES).json() == {"tables": ["t0", "t1", "t2", "t3", "t4"], "nextPageToken": None}
    few = shop.get(url, params={"maxResults": 1}).json()
    assert ([table["name"] for table in few["tableDetails"]], few["nextPageToken"]) == (["t0"], "t0")
    assert shop.get(url, params={"tableNamePattern": "none"}).json() == {"tableDetails": [], "nextPageToken": None}


def test_a_table_whose_schema_alone_is_larger_than_a_page_is_a_page(app: FastAPI, shop: TestClient) -> None:
    parts: Parts = app.state.parts
    with parts.database.transaction() as repository:
        for number in range(2):
            repository.tables.create("shop", f"t{number}", replace(schema(), comment="x" * (MOST_PAGE_BYTES + 1)))
    page = shop.get(f"{DATABASES}/shop/table-details").json()
    assert ([table["name"] for table in page["tableDetails"]], page["nextPageToken"]) == (["t0"], "t0")
