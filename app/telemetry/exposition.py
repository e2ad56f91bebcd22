"""Metrics as Prometheus reads them: what processes counted and what was asked for, in one text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from app.telemetry.entries import OPERATION, Asked, Counted, Entry, Kind
from app.telemetry.metrics import Life, Metrics

_OF_PROCESSES = {one.value.name: one for one in Asked if one.value.name.startswith("process_")}


class Told(NamedTuple):
    """One number of a metric that is asked for: the values of its labels in their order, and what it is now."""

    metric: Asked
    values: tuple[str, ...]
    number: float


def exposed(metrics: Metrics, told: Iterable[Told], accept: str) -> tuple[bytes, str]:
    """Return the text for a scraper with this Accept header (Prometheus' own format, or OpenMetrics), and its media
    type.
    """
    registry = CollectorRegistry()
    registry.register(_Everything(metrics, [*told, *told_of_processes(metrics.lives())]))
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


class _Everything(Collector):
    """All metrics of a service at one moment. A counter that is 0 is told as well, so that its first step is seen; but
    not of the many operations that nothing asks for.
    """

    def __init__(self, metrics: Metrics, told: Sequence[Told]) -> None:
        self._metrics = metrics
        self._told = told

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its series."""
        totals = self._metrics.totals()
        for counted in Counted:
            mine = [(values, numbers) for (metric, values), numbers in totals.items() if metric is counted]
            yield _family(counted.value, mine)
        numbers = defaultdict(list)
        for one in self._told:
            numbers[one.metric].append((one.values, [one.number]))
        for asked in Asked:
            yield _family(asked.value, numbers[asked])


def _family(entry: Entry, series: Iterable[tuple[Sequence[str], Sequence[float]]]) -> Metric:
    labels = list(entry.labels)
    if entry.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(entry.name, entry.meaning, labels=labels)
        for values, (*counts, total) in series:
            if any(counts) or OPERATION not in labels:
                bounds = [*(str(bound) for bound in entry.bounds), "+Inf"]
                histogram.add_metric(values, list(zip(bounds, accumulate(counts), strict=True)), total)
        return histogram
    kind = CounterMetricFamily if entry.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(entry.name, entry.meaning, labels=labels)
    for values, (number,) in series:
        if number or OPERATION not in labels:
            family.add_metric(values, number)
    return family


def told_of_processes(lives: Iterable[Life]) -> Iterator[Told]:
    """Yield what the system knows of each process; nothing of one that has just ended."""
    for life in lives:
        yield Told(Asked.PROCESS_STARTS, (life.name,), life.starts)
        if life.pid:
            for family in ProcessCollector(pid=lambda: life.pid, registry=None).collect():  # noqa: B023  # called at once
                yield from (Told(_OF_PROCESSES[family.name], (life.name,), one.value) for one in family.samples)
