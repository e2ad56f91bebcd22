"""Retries of a request by the service itself, while its batch cannot be stored for a moment.

Some senders give up soon and ignore Retry-After: Debezium's HTTP sink after five attempts in four seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from app.api.shared.deps import Parts, in_writers_thread
from app.core.errors import Conflict, NotStored, StagingFull, Unavailable

P = ParamSpec("P")
T = TypeVar("T")
PATIENCE_SECONDS: Final = 5.0
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 1.0


async def with_retries(
    parts: Parts, idempotency_key: str | None, work: Callable[P, T], *args: P.args, **given: P.kwargs
) -> T:
    """Return the result of ``work``, which stores a batch in a thread of the writers.

    Retry for ``PATIENCE_SECONDS`` while the staging area is full, or other requests alter the table. Retry an
    unavailable catalog or warehouse only if that cannot store the batch twice: nothing was stored, or
    ``idempotency_key`` finds the stored batch.
    """
    deadline, pause = time.monotonic() + PATIENCE_SECONDS, _FIRST_PAUSE_SECONDS
    while True:
        try:
            return await in_writers_thread(parts, work, *args, **given)
        except (StagingFull, Unavailable, Conflict) as error:
            passes = error.retry_seconds is not None  # of most conflicts there is none
            harmless = isinstance(error, (NotStored, StagingFull, Conflict)) or idempotency_key is not None
            if not passes or not harmless or time.monotonic() + pause >= deadline or parts.heads.stopped:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
