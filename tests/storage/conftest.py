"""A warehouse in a fresh folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.storage.layout import Warehouse


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(str(tmp_path / "warehouse"))
