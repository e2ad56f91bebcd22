"""Images of a warehouse, as a service has them open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.files.layout import Warehouse
from app.storage.images import Images


@pytest.fixture
def images(tmp_path: Path, warehouse: Warehouse) -> Iterator[Images]:
    opened = Images(tmp_path / "images", warehouse)
    yield opened
    opened.close()
