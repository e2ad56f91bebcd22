"""Pauses before failed work is retried."""

from __future__ import annotations

from datetime import datetime, timedelta

from app.core.table.history import Failures

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 300.0


def time_left(failures: Failures | None, now: datetime) -> timedelta:
    """Return how long to wait before the next attempt, 0 if it may begin. The pause doubles with each failure.

    A failure in the future was recorded before the clock was set back; its age is unknown, so it causes no pause.
    """
    if failures is None or now < failures.last_at:
        return timedelta(0)
    wait = min(FIRST_RETRY_SECONDS * 2 ** min(failures.in_a_row - 1, 20), LONGEST_RETRY_SECONDS)
    return max(timedelta(0), timedelta(seconds=wait) - (now - failures.last_at))
