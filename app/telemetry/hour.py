"""The last hour of the metrics, in memory that all processes of a service share.

One process of the service, that of the first row of the metrics, takes a sample every ``SAMPLE_SECONDS``; every
process reads them. The clock decides the place of a sample, so that a restarted process continues the hour of its
predecessor. Nothing is written to disk: the hour is lost when the service stops.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from app.telemetry.entries import NO_OPERATION, OPERATION, Counted, Entry, Measured
from app.telemetry.exposition import Reading
from app.telemetry.metrics import Metrics, cells_of

SAMPLE_SECONDS: Final = 10.0
HOUR_SECONDS: Final = 3600.0
SAMPLES: Final = int(HOUR_SECONDS / SAMPLE_SECONDS) + 1  # the oldest is the base of the first difference
# Time between two plotted values: a plot has no room for more.
STEP_SECONDS: Final = 30.0
# The stored counters of processes: the operations of the API together, and other requests apart.
KEPT: Final = (
    Counted.REQUESTS,
    Counted.REQUEST_SECONDS,
    Counted.LOOKED_UP,
    Counted.ACCEPTED_RECORDS,
    Counted.TASK_SECONDS,
    Counted.SPARK,
)
_OF_SERVICE: Final = (Measured.STAGED_BATCHES, Measured.STAGED_RECORDS, Measured.STAGED_AGE)
_OF_PROCESS: Final = (Measured.PROCESS_CPU, Measured.PROCESS_MEMORY, Measured.PROCESS_STARTS)
_CELL_BYTES: Final = 8
Key = tuple[Counted | Measured, tuple[str, ...]]


@dataclass(frozen=True)
class Sample:
    """The metrics at one time, ``at`` (seconds since 1970): ``Hour`` knows the place of each.
    Unknown values are NaN.
    """

    at: float
    cells: Sequence[float]


@dataclass(frozen=True)
class Step:
    """The differences between two samples, and the gauges at the second."""

    before: Sample
    after: Sample
    places: Mapping[Key, tuple[int, int]]

    @property
    def seconds(self) -> float:
        """The length of the step in seconds."""
        return self.after.at - self.before.at

    def now(self, metric: Counted | Measured, *values: str) -> float | None:
        """Return a gauge at its end; None if it is unknown."""
        first, _ = self.places[metric, values]
        return _known(self.after.cells[first])

    def grown(self, metric: Counted | Measured, *values: str) -> list[float] | None:
        """Return by how much each number of a counter or histogram grew; None if it is unknown, or it began
        again.
        """
        first, count = self.places[metric, values]
        cells = slice(first, first + count)
        grown = [new - old for new, old in zip(self.after.cells[cells], self.before.cells[cells], strict=True)]
        return grown if all(number >= 0 for number in grown) else None  # not a number is not at least 0

    def a_second(self, metric: Counted | Measured, *values: str) -> float | None:
        """Return the growth of a counter per second."""
        grown = self.grown(metric, *values)
        return None if grown is None else grown[0] / self.seconds


class Hour:
    """The samples of one hour, written by one process and read by all. It is made before the service forks."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.places: Mapping[Key, tuple[int, int]] = _laid_out(metrics)
        self._width = 1 + sum(count for _, count in self.places.values())
        self._cells = memoryview(mmap.mmap(-1, SAMPLES * self._width * _CELL_BYTES)).cast("d")

    def note(self, at: float, readings: Iterable[Reading]) -> None:
        """Store the sample of the time ``at``: the counters, and the ``readings`` of the service and its processes.
        Readings of several tables are combined.
        """
        row = [math.nan] * self._width
        for key, numbers in (*_counted(self.metrics), *_combined(readings)):
            if key in self.places:
                first, count = self.places[key]
                row[1 + first : 1 + first + count] = numbers
        place = int(at // SAMPLE_SECONDS) % SAMPLES * self._width
        self._cells[place] = 0.0  # readers skip it meanwhile
        for number, cell in enumerate(row[1:], place + 1):
            self._cells[number] = cell
        self._cells[place] = at

    def samples(self, now: float) -> list[Sample]:
        """Return the samples of the hour before ``now``, the oldest first."""
        cells, width = self._cells.tolist(), self._width
        oldest = now - HOUR_SECONDS - SAMPLE_SECONDS
        rows = (cells[start : start + width] for start in range(0, len(cells), width))
        return sorted((Sample(row[0], row[1:]) for row in rows if oldest < row[0] <= now), key=lambda sample: sample.at)

    def steps(self, now: float) -> list[Step]:
        """Return the steps of the hour before ``now``, each of ``STEP_SECONDS`` and measured by its last sample. A
        step is longer if the service took no sample in time.
        """
        last = {int(sample.at // STEP_SECONDS): sample for sample in self.samples(now)}
        return [Step(before, after, self.places) for before, after in pairwise(last.values())]


def quantile(bounds: Sequence[float], counts: Sequence[float], share: float) -> float | None:
    """Return the quantile ``share`` of a histogram, interpolated within its bucket; None without observations. Values
    beyond the last bound count as that bound.
    """
    total = sum(counts)
    if not total:
        return None
    wanted, below = share * total, 0.0
    for low, high, count in zip((0.0, *bounds), (*bounds, bounds[-1]), counts, strict=True):
        if below + count >= wanted:
            return low + (high - low) * (wanted - below) / count
        below += count
    return bounds[-1]


def _laid_out(metrics: Metrics) -> dict[Key, tuple[int, int]]:
    """Return the place of each number in a sample, and its length."""
    of_processes = ((metric, (name,)) for metric in _OF_PROCESS for name in metrics.processes)
    keys: list[Key] = [key for key, _ in _counted(metrics)]
    keys += [*((metric, ()) for metric in _OF_SERVICE), *of_processes]
    places, first = {}, 0
    for key in keys:
        count = cells_of(key[0].value) if isinstance(key[0], Counted) else 1
        places[key] = (first, count)
        first += count
    return places


def _counted(metrics: Metrics) -> Iterator[tuple[Key, Sequence[float]]]:
    """Yield the metrics of ``KEPT``, without the operations' names."""
    sums: dict[Key, Sequence[float]] = {}
    for (metric, values), numbers in metrics.totals().items():
        if metric in KEPT:
            key = (metric, _without_operation(metric.value, values))
            sums[key] = [old + new for old, new in zip(sums[key], numbers, strict=True)] if key in sums else numbers
    yield from sums.items()


def _without_operation(entry: Entry, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``values`` without the operation, unless it is ``NO_OPERATION``."""
    names = [*entry.labels]
    return tuple(value for name, value in zip(names, values, strict=True) if name != OPERATION or value == NO_OPERATION)


def _combined(readings: Iterable[Reading]) -> Iterator[tuple[Key, Sequence[float]]]:
    """Yield the readings of each process. Values of tables are summed; of ages the oldest is taken."""
    of_service: dict[Measured, list[float]] = {}
    for reading in readings:
        if reading.metric in _OF_PROCESS:
            yield (reading.metric, reading.values), [reading.number]
        elif reading.metric in _OF_SERVICE:
            of_service.setdefault(reading.metric, []).append(reading.number)
    for metric, numbers in of_service.items():
        yield (metric, ()), [max(numbers) if metric is Measured.STAGED_AGE else sum(numbers)]


def _known(number: float) -> float | None:
    return None if math.isnan(number) else number
