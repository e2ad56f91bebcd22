"""The queue of writers to the catalog: a few may wait, further ones must retry later (docs/decisions/0028)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Final

from app.core.errors import NotStored
from app.telemetry.entries import Counted
from app.telemetry.metrics import Metrics

MOST_WAITING: Final = 8  # writers of a process that may queue while the catalog does not answer
# A catalog without progress for this long counts as not answering.
PATIENCE_SECONDS: Final = 2.0
# Time between two checks of a waiting thread.
LOOK_SECONDS: Final = 0.1
_hurried: ContextVar[bool] = ContextVar("hurried", default=False)


@contextmanager
def hurried() -> Iterator[None]:
    """In the body, raise ``NotStored`` instead of queueing behind others for a catalog that does not answer: a client
    retries. A worker, outside of it, keeps waiting.
    """
    before = _hurried.set(True)
    try:
        yield
    finally:
        _hurried.reset(before)


class Writers:
    """The queued writers of a process, in the order of their arrival; ``clock`` returns seconds. All wait as long as
    some of them proceed, even slowly.
    """

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._lock = threading.Lock()
        self._since: dict[object, float] = {}
        self._moved_at = float("-inf")

    @contextmanager
    def waiting(self) -> Iterator[Callable[[], None]]:
        """Count the body as a waiting writer. Yield a check that raises ``NotStored`` if it must give up."""
        ticket, hurries = object(), _hurried.get()
        with self._lock:
            self._since[ticket] = self._clock()
            self._metrics.set(Counted.WAITING_WRITERS, len(self._since))

        def check() -> None:
            if hurries and self._stands_still() and not self._is_among_the_first(ticket):
                raise self._refusal()

        try:
            yield check
            self._moved_at = self._clock()
        finally:
            with self._lock:
                del self._since[ticket]
                self._metrics.set(Counted.WAITING_WRITERS, len(self._since))

    def check(self) -> None:
        """Raise ``NotStored`` if a new writer would queue behind others for a catalog that does not answer."""
        if len(self._since) >= MOST_WAITING and self._stands_still():
            raise self._refusal()

    def _stands_still(self) -> bool:
        with self._lock:
            first = next(iter(self._since.values()), None)
        return first is not None and self._clock() - max(first, self._moved_at) > PATIENCE_SECONDS

    def _is_among_the_first(self, ticket: object) -> bool:
        with self._lock:
            return ticket in islice(self._since, MOST_WAITING)

    def _refusal(self) -> NotStored:
        self._metrics.count(Counted.REFUSED_WRITERS)
        message = f"{len(self._since)} writers wait for the catalog, which does not answer; nothing was stored, retry"
        return NotStored(message)
