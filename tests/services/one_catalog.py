"""For tests of rows and files, which ask the same of both catalogs: those of its own queries name ``CATALOGS``."""

from __future__ import annotations

import pytest


@pytest.fixture
def catalog_kind() -> str:
    return "sqlite"
