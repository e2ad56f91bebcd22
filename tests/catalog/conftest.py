"""The catalog's behaviour suite runs on SQLite and on a real PostgreSQL; each test has a fresh, migrated catalog."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.catalog.database import CatalogDatabase
from tests.postgres import postgres_database, postgres_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    with postgres_server() as url:
        yield url


@contextmanager
def _empty_catalog(kind: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder}/catalog.db"
    else:
        with postgres_database(request.getfixturevalue("postgres"), f"t{uuid.uuid4().hex}") as url:
            yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a catalog that was never migrated."""
    with _empty_catalog(request.param, tmp_path, request) as url:
        yield url


@pytest.fixture
def database(catalog_url: str) -> Iterator[CatalogDatabase]:
    """A migrated catalog."""
    opened = CatalogDatabase(catalog_url)
    opened.migrate()
    yield opened
    opened.close()
