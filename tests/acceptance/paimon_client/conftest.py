"""What Paimon's Python client is given: a catalog on a served Keyfold, databases of its own, and rows by plain HTTP.

These run in .venv-paimon, where nothing of Keyfold is installed; tests/acceptance/test_pypaimon.py starts them.
"""

from __future__ import annotations

import os
import time
import uuid
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
import requests
from pypaimon import CatalogFactory, Schema
from pypaimon.catalog.rest.rest_catalog import RESTCatalog

URL = os.environ["KEYFOLD_URL"]
TOKEN = os.environ.get("KEYFOLD_TOKEN", "any")  # the client wants one, the service asks for none
ORDERS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("amount", pa.int32())])


def opened(**options: str) -> RESTCatalog:
    """A catalog as its users open one."""
    reported = {"metastore": "rest", "uri": URL, "warehouse": "keyfold", "token.provider": "bear", "token": TOKEN}
    return CatalogFactory.create(reported | options)


def orders(**options: str) -> Schema:
    """The schema of an ordinary table."""
    return Schema.from_pyarrow_schema(ORDERS, primary_keys=["id"], options={"bucket": "1"} | options)


class Orders:
    """One table, and its rows over plain HTTP."""

    def __init__(self, catalog: RESTCatalog, database: str, name: str) -> None:
        self.catalog, self.database, self.name = catalog, database, f"{database}.{name}"
        self.url = f"{URL}/v1/catalog/databases/{quote(database)}/tables/{quote(name)}"

    def post(self, *records: dict[str, Any]) -> None:
        """Posts records and waits until they are merged."""
        answer = requests.post(
            f"{self.url}/batches", json={"records": records}, headers={"Prefer": "wait=60"}, timeout=90
        )
        assert answer.status_code == 200, answer.text

    def compact(self) -> None:
        """Makes the table one run, and waits for the end."""
        task = requests.post(f"{self.url}/compact", timeout=90).json()
        deadline = time.monotonic() + 90
        while task["state"] in ("pending", "running") and time.monotonic() < deadline:
            time.sleep(0.05)
            task = requests.get(f"{self.url}/merges/{task['id']}", timeout=90).json()
        assert task["state"] == "succeeded", task

    def files(self) -> list[str]:
        """Every file below the table's folder."""
        path = requests.get(self.url, timeout=90).json()["path"].removeprefix("file://")
        return sorted(os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)


@pytest.fixture(scope="session")
def catalog() -> RESTCatalog:
    return opened()


@pytest.fixture
def database(catalog: RESTCatalog) -> str:
    """A new database."""
    name = f"d{uuid.uuid4().hex[:12]}"
    catalog.create_database(name, ignore_if_exists=False)
    return name


@pytest.fixture
def table(catalog: RESTCatalog, database: str) -> Orders:
    """A new table without rows."""
    catalog.create_table(f"{database}.orders", orders(), ignore_if_exists=False)
    return Orders(catalog, database, "orders")
