"""Tables that miss their ``merge.max-staleness``: on request, and in the log when it begins and ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.table.upkeep.overdue import Overdue, overdue
from app.services.shared.background import Repeated
from app.telemetry.entries import SPARK_SERVES

logger = logging.getLogger(__name__)
LOOK_SECONDS: Final = 5.0
BEGUN_LOOKS: Final = 2  # checks in a row: a single slow merge is not logged
# A table counts as timely after this time: a single timely merge among late ones is not logged.
ENDED_SECONDS: Final = 60.0


def overdue_tables(repository: Repository, table_id: str | None = None, *, spark_answers: bool) -> list[Overdue]:
    """Return the tables (or this one) that are overdue now, the one with the oldest batch first."""
    now = repository.now()
    stopped = repository.stops.stopped()
    waits = (replace(wait, stopped=wait.table.id in stopped) for wait in repository.stats.waits(table_id))
    verdicts = (overdue(wait, now, spark_answers=spark_answers) for wait in waits)
    return [verdict for verdict in verdicts if verdict is not None]


@dataclass
class _Seen:
    """A table that was overdue recently: in how many checks in a row, when last, and its worst delay."""

    worst: Overdue
    looks: int
    last_at: float
    warned: bool = False


class OverdueWatch(Repeated):
    """Logs the tables that begin to be overdue, and those that are in time again."""

    def __init__(self, database: CatalogDatabase, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__("overdue", self.look, lambda: LOOK_SECONDS)
        self._database = database
        self._clock = clock
        self._seen: dict[str, _Seen] = {}

    def look(self) -> None:
        """Check all tables once. Raise ``Unavailable``."""
        with self._database.reading() as repository:
            late = overdue_tables(repository, spark_answers=self._database.metrics.spark in SPARK_SERVES)
        now = self._clock()
        self._note(late, now)
        for table_id, seen in [*self._seen.items()]:
            if seen.warned and now - seen.last_at >= ENDED_SECONDS:
                logger.info("%s is merged in time again: it was overdue by up to %.0f s", *_name_and_delay(seen.worst))
            if now - seen.last_at >= (ENDED_SECONDS if seen.warned else LOOK_SECONDS / 2):
                del self._seen[table_id]

    def _note(self, late: Sequence[Overdue], now: float) -> None:
        for table_late in late:
            seen = self._seen.setdefault(table_late.table.id, _Seen(table_late, 0, now))
            seen.looks, seen.last_at = seen.looks + 1, now
            seen.worst = max(seen.worst, table_late, key=lambda each: each.by)
            if seen.looks >= BEGUN_LOOKS and not seen.warned:
                seen.warned = True
                text = "%s is overdue: its oldest batch waits %.0f s longer than merge.max-staleness: %s"
                logger.warning(text, *_name_and_delay(table_late), table_late.explained)


def _name_and_delay(overdue: Overdue) -> tuple[str, float]:
    return overdue.table.full_name, overdue.by.total_seconds()
