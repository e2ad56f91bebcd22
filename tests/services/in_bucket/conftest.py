"""The services' tests on a warehouse in a bucket: on an object store, behind a line that can fail."""

from __future__ import annotations

import pytest

from app.files.layout import Warehouse
from tests.object_store import FaultyLine, new_bucket, uri_of
from tests.services.executor import PythonExecutor
from tests.services.one_catalog import catalog_kind

__all__ = ["catalog_kind"]


@pytest.fixture
def warehouse(line: FaultyLine, store: str) -> Warehouse:
    return Warehouse(uri_of(new_bucket(store), line.endpoint))


@pytest.fixture
def executor() -> PythonExecutor:
    return PythonExecutor()
