"""Late records counted behind the merges of a worker, in a thread of their own: no merge waits for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import Empty, Full, Queue
from typing import Final

from app.catalog.database import CatalogDatabase
from app.core.errors import KeyfoldError
from app.core.table.history import Task
from app.files.layout import Warehouse
from app.services.explaining.lateness import count_late_records

logger = logging.getLogger(__name__)
MOST_WAITING: Final = 1_000  # merges; of more that come at once nothing is counted
LOOK_SECONDS: Final = 1.0  # how soon it ends when it is told to


class LateCounting:
    """Counts what came late in each merge that it is told of. Safe to share between threads."""

    def __init__(self, database: CatalogDatabase, warehouse: Warehouse) -> None:
        self._database = database
        self._warehouse = warehouse
        self._waiting: Queue[Task] = Queue(MOST_WAITING)

    def note(self, merge: Task) -> None:
        """Have a merge that is over counted."""
        try:
            self._waiting.put_nowait(merge)
        except Full:
            logger.info("late records of merge %s are not counted: too many merges wait for it", merge.id)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Count until ``stopped``; what waits then is not counted."""
        while not stopped():
            try:
                merge = self._waiting.get(timeout=LOOK_SECONDS)
            except Empty:
                continue
            self._count(merge)

    def _count(self, merge: Task) -> None:
        try:
            count_late_records(self._database, self._warehouse, merge.table_id, merge.id)
        except KeyfoldError as error:
            logger.warning("late records of merge %s are not counted: %s", merge.id, error)
        except Exception:
            logger.exception("late records of merge %s are not counted", merge.id)
