"""Clocks that tests set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class SetClock:
    """Stands still until it is moved, forward or back; dates what a ``CatalogDatabase`` stores."""

    def __init__(self) -> None:
        self.time = datetime(2026, 6, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def move(self, **by: float) -> None:
        """By ``timedelta(**by)``, back when it is negative."""
        self.time += timedelta(**by)


class Seconds:
    """The same for what counts seconds and never goes back."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time
