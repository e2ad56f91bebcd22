"""Clocks that tests set."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from app.catalog.database import CatalogDatabase


class SetClock:
    """Stands still until it is moved, forward or back; dates what a ``CatalogDatabase`` stores."""

    def __init__(self) -> None:
        self.time = datetime(2026, 6, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def move(self, **by: float) -> None:
        """By ``timedelta(**by)``, back when it is negative."""
        self.time += timedelta(**by)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


def _opened(catalog_url: str, clock: SetClock) -> Iterator[CatalogDatabase]:
    """A migrated catalog that goes by ``clock``."""
    opened = CatalogDatabase(catalog_url, clock)
    opened.migrate()
    yield opened
    opened.close()


database = pytest.fixture(name="database")(_opened)
clocked = pytest.fixture(name="clocked")(_opened)  # where some tests of a file go by the real time


class Seconds:
    """The same for what counts seconds and never goes back."""

    def __init__(self, time: float = 0.0) -> None:
        self.time = time

    def __call__(self) -> float:
        return self.time
