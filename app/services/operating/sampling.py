"""Samples for the last hour of the metrics (``app.telemetry.hour``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from app.catalog.database import CatalogDatabase
from app.core.errors import KeyfoldError
from app.services.operating.scrapes import staged_areas
from app.services.shared.background import Repeated
from app.telemetry.exposition import Reading, process_readings
from app.telemetry.hour import SAMPLE_SECONDS, Hour


class Sampler(Repeated):
    """Takes a sample every ten seconds. It reads the system's files of each process and queries the staged batches
    once, together a few milliseconds. Images are counted only on request.
    """

    def __init__(self, database: CatalogDatabase, hour: Hour, clock: Callable[[], float] = time.time) -> None:
        super().__init__("sampler", self.sample, self._pause)
        self._database = database
        self._hour = hour
        self._clock = clock
        self._begun = False

    def sample(self) -> None:
        """Take a sample now; without values of the catalog if it does not answer."""
        self._begun = True
        self._hour.note(self._clock(), [*process_readings(self._hour.metrics.lives()), *self._staged()])

    def _pause(self) -> float:
        """Return the seconds until the next sample is due: the first is due at once, so that later changes show."""
        return SAMPLE_SECONDS - self._clock() % SAMPLE_SECONDS if self._begun else 0.0

    def _staged(self) -> Iterator[Reading]:
        try:
            with self._database.reading() as repository:
                yield from staged_areas(repository, 0)
        except KeyfoldError:
            return
