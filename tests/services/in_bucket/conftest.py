"""The services' tests on a warehouse in a bucket: on an object store, behind a line that can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.storage.layout import Warehouse
from tests.object_store import FaultyLine, new_bucket, uri_of
from tests.services.store_executor import StoreExecutor


@pytest.fixture
def catalog_kind() -> str:
    """One is enough: what asks the store knows of no catalog."""
    return "sqlite"


@pytest.fixture
def warehouse(line: FaultyLine, store: str) -> Warehouse:
    return Warehouse(uri_of(new_bucket(store), line.endpoint))


@pytest.fixture
def executor(warehouse: Warehouse, tmp_path: Path) -> StoreExecutor:
    return StoreExecutor(warehouse, tmp_path / "spark")
