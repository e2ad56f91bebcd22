"""Tasks that a worker may claim, and their order."""

from __future__ import annotations

from datetime import datetime, timedelta

import sqlalchemy as sa

from app.catalog.shared.models import forgettings, merges
from app.core.table.history import TaskState

# A lease from so far in the future was taken before the clock was set back: its end is meaningless. Smaller
# steps only lengthen a lease by as much.
_CLOCK_STEP = timedelta(seconds=5)

# Built once: workers run it at every commit, and building it took a tenth of the time of a small merge.
_running = merges.alias("running")
_RUNS = sa.exists().where(
    _running.c.table_id == merges.c.table_id, _running.c.kind == merges.c.kind, _running.c.state == TaskState.RUNNING
)
_FORGETS = sa.exists().where(forgettings.c.table_id == merges.c.table_id, forgettings.c.forgotten_at.is_(None))
WAITS = (merges.c.state == TaskState.PENDING) & ~_RUNS & ~_FORGETS


# Claimable at ``now``: a pending task, unless one of its table and kind runs or keys are to be forgotten;
# and a task whose lease has expired. If the clock was set and the lease only seems expired, its worker cannot commit.
_TIME = merges.c.requested_at.type
_NOW = sa.bindparam("now", type_=_TIME)
_OVER = (merges.c.lease_expires_at <= _NOW) | (merges.c.leased_at > sa.bindparam("clock_was_set", type_=_TIME))
CLAIMABLE = WAITS | (merges.c.state == TaskState.RUNNING) & _OVER
# Tasks that were begun come before pending ones; a request from the future is from before the clock was set back.
OLDEST_FIRST = (
    sa.case((merges.c.state == TaskState.RUNNING, 0), else_=1),
    sa.case((merges.c.requested_at > _NOW, 0), else_=1),
    merges.c.requested_at,
    merges.c.id,
)


def at(now: datetime) -> dict[str, datetime]:
    """Return the parameters of a statement with ``CLAIMABLE`` or ``OLDEST_FIRST``."""
    return {"now": now, "clock_was_set": now + _CLOCK_STEP}
