"""Times so long before or after another one, within the years that the calendar has (1 to 9999)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

FIRST: Final = datetime.min.replace(tzinfo=UTC)
LAST: Final = datetime.max.replace(tzinfo=UTC)


def earlier(moment: datetime, by: timedelta) -> datetime:
    """Return ``moment - by``, capped at the start of year 1."""
    try:
        return moment - by
    except OverflowError:
        return FIRST


def later(moment: datetime, by: timedelta) -> datetime:
    """Return ``moment + by``, capped at the end of year 9999."""
    try:
        return moment + by
    except OverflowError:
        return LAST
