"""Cached answers of checks that may hang: a caller never waits for longer than a moment."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Refreshed(Generic[T]):
    """Caches the last answer of ``look``.

    If the answer is older than ``seconds``, a call runs ``look`` in a separate thread, never two at once, and waits at
    most ``patience_seconds``. A catalog or disk that hangs blocks only that thread.
    """

    def __init__(
        self,
        look: Callable[[], T],
        seconds: float,
        patience_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look = look
        self._seconds = seconds
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._answer: T | None = None
        self._at = float("-inf")
        self._looking: asyncio.Future[None] | None = None

    async def now(self) -> T | None:
        """Return the answer; None if the cached one is too old and no new one comes in time."""
        if self._clock() - self._at > self._seconds:
            if self._looking is None or self._looking.done():
                self._looking = self._begun()
            await asyncio.wait({self._looking}, timeout=self._patience_seconds)
        return self._answer if self._clock() - self._at <= self._seconds else None

    def _begun(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        looked: asyncio.Future[None] = loop.create_future()

        def look() -> None:
            at, answer = self._clock(), None
            try:
                answer = self._look()
            except Exception:
                logger.warning("the state of the service could not be read", exc_info=True)
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(self._keep, looked, answer, at)

        threading.Thread(target=look, name="look", daemon=True).start()
        return looked

    def _keep(self, looked: asyncio.Future[None], answer: T | None, at: float) -> None:
        if answer is not None:
            self._answer, self._at = answer, at
        if not looked.done():
            looked.set_result(None)
