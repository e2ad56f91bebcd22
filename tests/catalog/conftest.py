"""The catalog's behaviour suite runs on SQLite and on a real PostgreSQL; each test has a fresh catalog."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.catalog.database import CatalogDatabase
from app.core.table.history import Table
from tests.catalog.builders import CATALOGS, create_table
from tests.postgres import TEMPLATE, postgres_database


@pytest.fixture(params=CATALOGS)
def catalog_kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def empty_catalog_url(catalog_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a catalog that was never migrated."""
    if catalog_kind == "sqlite":
        yield f"sqlite:///{tmp_path}/empty.db"
    else:
        with postgres_database(request.getfixturevalue("postgres"), f"t{uuid.uuid4().hex}") as url:
            yield url


@pytest.fixture
def catalog_url(catalog_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a migrated catalog: a copy of one that was migrated once."""
    if catalog_kind == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "catalog.db")
        yield f"sqlite:///{tmp_path}/catalog.db"
    else:
        with postgres_database(request.getfixturevalue("postgres"), f"t{uuid.uuid4().hex}", TEMPLATE) as url:
            yield url


@pytest.fixture
def database(catalog_url: str) -> Iterator[CatalogDatabase]:
    """A migrated catalog."""
    opened = CatalogDatabase(catalog_url)
    yield opened
    opened.close()


@pytest.fixture
def table(database: CatalogDatabase) -> Table:
    """The table ``wide`` of the database ``shop``."""
    return create_table(database)
