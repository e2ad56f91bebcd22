"""Retries inside a request while it cannot be stored for a moment: some senders give up soon and ignore Retry-After
(Debezium's HTTP sink after five attempts in four seconds).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from app.api.shared.deps import Parts, in_writers_thread
from app.core.errors import Conflict, ErrorCode, NotStored, StagingFull, Unavailable
from app.services.merging.merges import request_merge_of

P = ParamSpec("P")
T = TypeVar("T")
PATIENCE_SECONDS: Final = 5.0
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 1.0


async def stored(
    parts: Parts, database: str, idempotency_key: str | None, work: Callable[P, T], *args: P.args, **given: P.kwargs
) -> T:
    """Return the result of ``work``, which runs in a thread of the writers.

    Retry for ``PATIENCE_SECONDS`` while the staging area is full, or while a table of ``database`` that the work
    alters has staged batches; then request a merge. Retry an unavailable catalog or warehouse only if nothing was
    stored, or if ``idempotency_key`` finds the stored batch.
    """
    deadline, pause = time.monotonic() + PATIENCE_SECONDS, _FIRST_PAUSE_SECONDS
    while True:
        try:
            return await in_writers_thread(parts, work, *args, **given)
        except (Conflict, StagingFull, Unavailable) as error:
            passing = (
                error.code in _PASSING
                or isinstance(error, NotStored)
                or (isinstance(error, Unavailable) and idempotency_key is not None)
            )
            if not passing or time.monotonic() + pause >= deadline or parts.heads.stopped:
                raise
            if error.code is ErrorCode.TABLE_HAS_STAGED_BATCHES:
                name = (database, error.resource_name or "")
                await in_writers_thread(parts, request_merge_of, parts.database, name)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


_PASSING: Final = (ErrorCode.STAGING_FULL, ErrorCode.TABLE_HAS_STAGED_BATCHES)
