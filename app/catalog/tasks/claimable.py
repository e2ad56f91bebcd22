"""Tasks that a worker may claim, and in which order."""

from __future__ import annotations

from datetime import datetime, timedelta

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


# Claimable at a moment (``now``): a task that waits, unless one of its table and kind runs or keys are to be forgotten;
# and a task whose lease has expired. If the lease only seems over because the clock was set, its worker cannot commit.
_TIME = merges.c.requested_at.type
_NOW = sa.bindparam("now", type_=_TIME)
_OVER = (merges.c.lease_expires_at <= _NOW) | (merges.c.leased_at > sa.bindparam("clock_was_set", type_=_TIME))
CLAIMABLE = WAITS | (merges.c.state == TaskState.RUNNING) & _OVER
# What was begun comes before what waits; a request of the future is one from before the clock was set back.
OLDEST_FIRST = (
    sa.case((merges.c.state == TaskState.RUNNING, 0), else_=1),
    sa.case((merges.c.requested_at > _NOW, 0), else_=1),
    merges.c.requested_at,
    merges.c.id,
)


def at(now: datetime) -> dict[str, datetime]:
    """Return the values of a statement with ``CLAIMABLE`` or ``OLDEST_FIRST``."""
    return {"now": now, "clock_was_set": now + _CLOCK_STEP}
