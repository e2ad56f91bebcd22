"""How long what has failed waits before it is tried again."""

from __future__ import annotations

from datetime import datetime, timedelta

from app.core.table.history import Failures

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 300.0


def still_waits(failures: Failures | None, now: datetime) -> bool:
    """Return whether it is too early to try again: after each failure twice as long as after the one before.

    A failure in the future was noted before the clock was set back: it is unknown how long ago that was, so it waits no
    more.
    """
    if failures is None:
        return False
    wait = min(FIRST_RETRY_SECONDS * 2 ** min(failures.in_a_row - 1, 20), LONGEST_RETRY_SECONDS)
    return failures.last_at <= now < failures.last_at + timedelta(seconds=wait)
