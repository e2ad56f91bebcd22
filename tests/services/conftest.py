"""Services over a real catalog (SQLite and PostgreSQL) and a warehouse in a fresh folder; merges run in Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.catalog.database import CatalogDatabase
from app.files.layout import Warehouse
from app.services.rows.lookups import Images
from app.services.shared.executor import MergeSite
from tests.catalog.conftest import catalog_kind, catalog_url, database
from tests.services.executor import PythonExecutor

__all__ = ["catalog_kind", "catalog_url", "database"]


@pytest.fixture
def images(tmp_path: Path, warehouse: Warehouse) -> Iterator[Images]:
    opened = Images(tmp_path / "images", warehouse)
    yield opened
    opened.close()


@pytest.fixture
def executor() -> PythonExecutor:
    return PythonExecutor()


@pytest.fixture
def site(database: CatalogDatabase, warehouse: Warehouse, executor: PythonExecutor) -> MergeSite:
    return MergeSite(database, warehouse, executor, lease_seconds=600)
