"""Tasks that a worker may claim, and in which order."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from app.catalog.shared.models import forgettings, merges
from app.core.table.history import TaskState

# A lease that was taken so far in the future was taken before the clock was set back: its end says nothing. Smaller
# steps only lengthen a lease by as much.
_CLOCK_STEP = timedelta(seconds=5)

# Put together once: workers ask at every commit, and this took a tenth of what a small merge does.
_running = merges.alias("running")
_RUNS = sa.exists().where(
    _running.c.table_id == merges.c.table_id, _running.c.kind == merges.c.kind, _running.c.state == TaskState.RUNNING
)
_FORGETS = sa.exists().where(forgettings.c.table_id == merges.c.table_id, forgettings.c.forgotten_at.is_(None))
WAITS = (merges.c.state == TaskState.PENDING) & ~_RUNS & ~_FORGETS


def claimable(now: datetime) -> sa.ColumnElement[bool]:
    """Return the condition of tasks that may be claimed: they wait while none of their table and kind runs and no keys
    are to be forgotten, or their worker let the lease expire.

    A worker whose lease only seems over, because the clock was set, cannot commit any more.
    """
    over = (merges.c.lease_expires_at <= now) | (merges.c.leased_at > now + _CLOCK_STEP)
    return WAITS | (merges.c.state == TaskState.RUNNING) & over


def oldest_first(now: datetime) -> tuple[sa.ColumnElement[Any], ...]:
    """Return what was begun before what waits; a request of the future is one from before the clock was set back."""
    begun = sa.case((merges.c.state == TaskState.RUNNING, 0), else_=1)
    return begun, sa.case((merges.c.requested_at > now, 0), else_=1), merges.c.requested_at, merges.c.id
