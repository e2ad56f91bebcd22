"""Heads: the current snapshots of followed tables, polled once for all waiting requests."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from app.catalog.database import CatalogDatabase
from app.core.errors import KeyfoldError

logger = logging.getLogger(__name__)


class Stopped(Exception):
    """The service is stopping; waiting requests must end."""


class Dropped(Exception):
    """The table was dropped."""


class Heads:
    """Notifies waiting requests of newer snapshots. Waiting costs no thread and no transaction: one task reads the
    heads of all followed tables every ``seconds``, and only while some are followed.
    """

    def __init__(self, database: CatalogDatabase, seconds: float) -> None:
        self._database = database
        self._seconds = seconds
        self._followed: Counter[str] = Counter()
        self._known: Mapping[str, int] = {}
        self._read: set[str] = set()  # tables that ``_known`` was read for
        self._tick = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    @contextmanager
    def following(self, table_id: str) -> Iterator[None]:
        """Poll the table's head during the body."""
        self._followed[table_id] += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll())
        try:
            yield
        finally:
            self._followed[table_id] -= 1
            self._followed += Counter()  # drops what nothing follows any more

    async def newer(self, table_id: str, than: int, seconds: float) -> int | None:
        """Return the current snapshot once it is newer than number ``than``; None if there is none within ``seconds``.

        Raise ``Stopped`` if the service stops and ``Dropped`` if the table was dropped.
        """
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            self.check()
            tick = self._tick
            if table_id in self._read:
                if table_id not in self._known:
                    raise Dropped
                if self._known[table_id] > than:
                    return self._known[table_id]
            wait = deadline - asyncio.get_running_loop().time()
            if wait <= 0:
                return None
            with suppress(TimeoutError):
                await asyncio.wait_for(tick.wait(), wait)

    def check(self) -> None:
        """Raise ``Stopped`` if the service stops."""
        if self.stopped:
            raise Stopped

    @property
    def stopped(self) -> bool:
        """Whether the service stops."""
        return self._stopped

    def stop(self) -> None:
        """End all waiting requests. Call it in the event loop."""
        self._stopped = True
        self._tick.set()

    async def _poll(self) -> None:
        while self._followed and not self._stopped:
            followed = set(self._followed)
            try:
                self._known, self._read = await asyncio.to_thread(self._heads, followed), followed
            except KeyfoldError:
                logger.warning("followed tables could not be looked up; retried", exc_info=True)
            tick, self._tick = self._tick, asyncio.Event()
            tick.set()
            await asyncio.sleep(self._seconds)
        self._read = set()

    def _heads(self, table_ids: set[str]) -> dict[str, int]:
        with self._database.reading() as repository:
            return repository.commits.heads(table_ids)
