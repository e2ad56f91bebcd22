"""The counters of a service's processes, in memory that all of them share (docs/decisions/0027)."""

from __future__ import annotations

import mmap
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

from app.telemetry.entries import NO_OPERATION, Counted, Entry, Kind, SparkState

_PID, _STARTS = 0, 1  # the first cells of a process's row
_FIRST = 2
_CELL_BYTES = 8
_Place = tuple[Counted, tuple[str, ...]]


@dataclass(frozen=True)
class Life:
    """A process of the service: its name, its id (0 while there is none) and how often it was started."""

    name: str
    pid: int
    starts: int


class Metrics:
    """A row of numbers for each process of the service, made by the parent before it forks.

    A process adds to its own row only, and every process reads all rows: a process that dies leaves no file, and its
    successor continues its counters. ``operations`` are the operation ids of the application. A process without a row
    counts in the first.
    """

    def __init__(self, operations: Sequence[str] = (), processes: Sequence[str] = ("service",)) -> None:
        self._processes = tuple(processes)
        values = (*operations, NO_OPERATION)
        self._places, self._width = _laid_out(values)
        shared = mmap.mmap(-1, max(1, len(self._processes)) * self._width * _CELL_BYTES)
        self._all = memoryview(shared).cast("d")
        self._own = self._all[: self._width]
        self._own_place = 0
        self._lock = threading.Lock()
        self._looked_up = [self._places[Counted.LOOKED_UP, ("one", images)] for images in ("miss", "hit")]
        self._bounds = Counted.REQUEST_SECONDS.value.bounds
        # Of each operation: the cell before that of 1xx, the first bucket, the sum of the seconds.
        seconds = {value: self._places[Counted.REQUEST_SECONDS, (value,)] for value in values}
        self._operations: Mapping[str, tuple[int, int, int]] = {
            operation: (self._places[Counted.REQUESTS, (operation, "1xx")] - 1, first, first + len(self._bounds) + 1)
            for operation, first in seconds.items()
        }

    @property
    def processes(self) -> Sequence[str]:
        """The names of the service's processes."""
        return self._processes

    @property
    def is_first(self) -> bool:
        """Whether this process has the first row: it does the work that one process does for all."""
        return self._own_place == 0

    def take(self, process: str) -> None:
        """Count as ``process`` from here on, and clear the gauges of its predecessor."""
        place = self._processes.index(process)
        cells = self._all[place * self._width : (place + 1) * self._width]
        for (metric, _), first in self._places.items():
            if metric.value.kind is Kind.GAUGE:
                cells[first] = 0.0
        cells[_PID] = os.getpid()
        cells[_STARTS] += 1
        self._own, self._own_place = cells, place

    def adopt(self, process: str, pid: int) -> None:
        """Record that a child that is not Python (Spark's JVM) runs as ``pid``; 0: none."""
        place = self._processes.index(process) * self._width
        if self._all[place + _PID] != pid:
            self._all[place + _PID] = pid
            self._all[place + _STARTS] += pid != 0

    def count(self, metric: Counted, *values: str, amount: float = 1.0) -> None:
        """Add to a counter."""
        place = self._places[metric, values]
        with self._lock:
            self._own[place] += amount

    def looked_up(self, by_image: bool) -> None:  # by place: the cheapest call
        """Count a key that was looked up alone. Only the event loop calls it, as ``answered``."""
        self._own[self._looked_up[by_image]] += 1.0

    def set(self, metric: Counted, value: float, *values: str) -> None:
        """Set a gauge."""
        self._own[self._places[metric, values]] = value

    def observe(self, metric: Counted, seconds: float, *values: str) -> None:
        """Add one to a histogram."""
        bounds = metric.value.bounds
        place = self._places[metric, values]
        with self._lock:
            self._own[place + bisect_left(bounds, seconds)] += 1.0
            self._own[place + len(bounds) + 1] += seconds

    @contextmanager
    def timed(self, metric: Counted, *values: str) -> Iterator[None]:
        """Observe how long the block takes, also when it raises."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.observe(metric, time.perf_counter() - began, *values)

    def answered(self, operation: str, status_class: int, seconds: float) -> None:
        """Count a request; ``status_class`` is the first digit of its status, 6 if the client disconnected. Only the
        event loop calls it, without a lock, so that lookups never wait for one.
        """
        cells = self._own
        requests, buckets, total = self._operations.get(operation) or self._operations[NO_OPERATION]
        cells[requests + status_class] += 1.0
        cells[buckets + bisect_left(self._bounds, seconds)] += 1.0
        cells[total] += seconds

    def say_spark(self, state: SparkState) -> None:
        """Set the state of Spark."""
        for spark_state in SparkState:
            self.set(Counted.SPARK, float(spark_state is state), spark_state)

    @property
    def spark(self) -> SparkState:
        """The state of Spark, from whichever process has set it."""
        rows = range(0, len(self._all), self._width)
        states = (
            state for state in SparkState for row in rows if self._all[row + self._places[Counted.SPARK, (state,)]]
        )
        return next(states, SparkState.STARTING)

    def totals(self) -> Mapping[_Place, Sequence[float]]:
        """Return the sums over all processes: one number for a counter or gauge; for a histogram the count of each
        bucket, and the sum of the seconds.
        """
        rows = [self._all[start : start + self._width].tolist() for start in range(0, len(self._all), self._width)]
        sums = [sum(column) for column in zip(*rows, strict=True)]
        return {place: sums[first : first + cells_of(place[0].value)] for place, first in self._places.items()}

    def lives(self) -> list[Life]:
        """Return the processes of the service that were started at least once."""
        starts = range(0, len(self._all), self._width)
        lives = [(int(self._all[start + _PID]), int(self._all[start + _STARTS])) for start in starts]
        named = zip(self._processes, lives, strict=True)
        return [Life(name, pid, count) for name, (pid, count) in named if count]


def _laid_out(operations: Sequence[str]) -> tuple[dict[_Place, int], int]:
    """Return the first cell of each metric for each combination of label values, and the number of cells in a row."""
    places: dict[_Place, int] = {}
    width = _FIRST
    for metric in Counted:
        given = (values or operations for values in metric.value.labels.values())
        for values in product(*given):
            places[metric, tuple(str(value) for value in values)] = width
            width += cells_of(metric.value)
    return places, width


def cells_of(entry: Entry) -> int:
    """Return the number of cells of a metric: for a histogram its buckets, and the sum."""
    return len(entry.bounds) + 2 if entry.kind is Kind.HISTOGRAM else 1
