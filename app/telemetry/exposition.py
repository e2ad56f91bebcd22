"""Metrics in Prometheus's format: the counters of all processes and the readings of the scrape, in one text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from app.telemetry.entries import OPERATION, Counted, Entry, Kind, Measured
from app.telemetry.metrics import Life, Metrics

_OF_PROCESSES = {metric.value.name: metric for metric in Measured if metric.value.name.startswith("process_")}


class Reading(NamedTuple):
    """The present number of a metric that is read at a scrape, with the values of its labels in their order."""

    metric: Measured
    values: tuple[str, ...]
    number: float


def exposed(metrics: Metrics, readings: Iterable[Reading], accept: str) -> tuple[bytes, str]:
    """Return the text for a scraper with this Accept header (Prometheus' own format, or OpenMetrics), and its media
    type.
    """
    registry = CollectorRegistry()
    registry.register(_Everything(metrics, [*readings, *process_readings(metrics.lives())]))
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


class _Everything(Collector):
    """All metrics of a service at one moment. A counter that is 0 is exposed, too, so that its first increase is seen.
    Counters of operations that were never called are left out.
    """

    def __init__(self, metrics: Metrics, readings: Sequence[Reading]) -> None:
        self._metrics = metrics
        self._readings = readings

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its series."""
        totals = self._metrics.totals()
        for counted in Counted:
            series = [(values, numbers) for (metric, values), numbers in totals.items() if metric is counted]
            yield _family(counted.value, series)
        numbers = defaultdict(list)
        for reading in self._readings:
            numbers[reading.metric].append((reading.values, [reading.number]))
        for metric in Measured:
            yield _family(metric.value, numbers[metric])


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


def process_readings(lives: Iterable[Life]) -> Iterator[Reading]:
    """Yield the operating system's readings of each process; skip one that has just ended."""
    for life in lives:
        yield Reading(Measured.PROCESS_STARTS, (life.name,), life.starts)
        if life.pid:
            for family in ProcessCollector(pid=lambda: life.pid, registry=None).collect():  # noqa: B023  # called at once
                yield from (
                    Reading(_OF_PROCESSES[family.name], (life.name,), sample.value) for sample in family.samples
                )
