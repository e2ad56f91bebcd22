"""Compactions wait for merges that are overdue because there are too many, but never forever."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.table.upkeep.overdue import OverdueReason
from app.services.merging.overdue import overdue_tables

MOST_SECONDS: Final = 10.0


class GivingWay:
    """Delay a compaction while merges wait: as long as the last one took, at most ``MOST_SECONDS``.

    So compactions of up to ``MOST_SECONDS`` take at most half of the time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._took = MOST_SECONDS  # the duration of the next one is unknown; the first waits for merges
        self._since: float | None = None

    def may_begin(self, database: CatalogDatabase) -> bool:
        """Return whether a pending compaction may begin now. Raise ``Unavailable``."""
        with database.reading() as repository:
            if not repository.claimed_tasks.compactions_wait():
                return False
            crowded = _crowded(repository)
        return not self.gives_way(crowded)

    def gives_way(self, crowded: bool) -> bool:
        """Return whether the next compaction is postponed; ``crowded``: merges wait for others."""
        now = self._clock()
        if self._since is None:
            self._since = now
        return crowded and now - self._since < min(self._took, MOST_SECONDS)

    @contextmanager
    def compacting(self) -> Iterator[None]:
        """Measure the compaction in the body."""
        began = self._clock()
        try:
            yield
        finally:
            self._since = self._clock()
            self._took = self._since - began


def _crowded(repository: Repository) -> bool:
    """Return whether merges are overdue because they wait for other merges."""
    late = overdue_tables(repository, spark_answers=True)
    return any(overdue.reason is OverdueReason.WAITING for overdue in late)
