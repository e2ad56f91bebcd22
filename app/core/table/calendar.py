"""Times so long before or after another one, within the years that the calendar has (1 to 9999)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

FIRST: Final = datetime.min.replace(tzinfo=UTC)
LAST: Final = datetime.max.replace(tzinfo=UTC)


def earlier(moment: datetime, by: timedelta) -> datetime:
    """Return the time so long before ``moment``, the first one of the calendar at the earliest."""
    try:
        return moment - by
    except OverflowError:
        return FIRST


def later(moment: datetime, by: timedelta) -> datetime:
    """Return the time so long after ``moment``, the last one of the calendar at the latest."""
    try:
        return moment + by
    except OverflowError:
        return LAST
