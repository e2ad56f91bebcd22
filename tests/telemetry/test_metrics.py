"""Metrics: rows of numbers that the processes of a service share, and their text."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from app.telemetry.entries import ENTRIES, Access, Counted, Kind, Measured, SparkState, TaskOutcome
from app.telemetry.exposition import Reading, exposed
from app.telemetry.metrics import Metrics

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
Series = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def series(text: str, parse: Callable[..., object] = parse_text) -> Series:
    """Every number of an exposition, by name and labels."""
    families = list(parse(text))  # type: ignore[call-overload]  # both are generators of families
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def named(found: Series, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def in_a_fork(work: Callable[[], None]) -> None:
    """``work`` done by a process of its own, which is over afterwards."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def records(metrics: Metrics) -> float:
    return metrics.totals()[Counted.ACCEPTED_RECORDS, ()][0]


def test_what_any_process_counts_everybody_reads_also_when_it_is_gone() -> None:
    metrics = Metrics(processes=("api-1", "api-2", "worker"))

    def serve(name: str, count: int) -> None:
        metrics.take(name)
        metrics.count(Counted.ACCEPTED_RECORDS, amount=count)

    in_a_fork(lambda: serve("api-1", 3))
    in_a_fork(lambda: serve("api-2", 4))
    assert records(metrics) == 7
    in_a_fork(lambda: serve("api-1", 10))
    assert records(metrics) == 17
    assert [(life.name, life.starts) for life in metrics.lives()] == [("api-1", 2), ("api-2", 1)]


def test_what_a_dead_process_measured_of_the_moment_is_forgotten_by_the_one_in_its_place() -> None:
    metrics = Metrics(processes=("api-1", "worker"))

    def merge() -> None:
        metrics.take("worker")
        metrics.say_spark(SparkState.READY)

    in_a_fork(merge)
    assert metrics.spark is SparkState.READY
    in_a_fork(lambda: metrics.take("worker"))
    assert metrics.spark is SparkState.STARTING


def test_a_histogram_is_reported_by_buckets_that_add_up() -> None:
    metrics = Metrics()
    for seconds in (0.0002, 0.004, 0.004, 100.0):
        metrics.observe(Counted.CATALOG_WAIT, seconds, Access.WRITE)
    found = series(exposed(metrics, [], "")[0].decode())
    bucket = "keyfold_catalog_wait_seconds_bucket"
    reported = [
        named(found, bucket, access="write", le=bound) for bound in ("0.0005", "0.001", "0.005", "30.0", "+Inf")
    ]
    assert reported == [1, 1, 3, 3, 4]
    assert named(found, "keyfold_catalog_wait_seconds_count", access="write") == 4
    assert named(found, "keyfold_catalog_wait_seconds_sum", access="write") == pytest.approx(100.0082)


def test_requests_are_reported_by_operation_and_class_of_status_and_unknown_operations_together() -> None:
    metrics = Metrics(["getRow", "postBatch"])
    for operation, status in (("getRow", 2), ("getRow", 2), ("getRow", 4), ("getRow", 6), ("surprise", 5)):
        metrics.answered(operation, status, 0.1)
    found = series(exposed(metrics, [], "")[0].decode())
    reported = {
        tuple(sorted(labels)): value for (name, labels), value in found.items() if name == "keyfold_requests_total"
    }
    assert reported == {
        (("operation", "getRow"), ("status", "2xx")): 2,
        (("operation", "getRow"), ("status", "4xx")): 1,
        (("operation", "getRow"), ("status", "gone")): 1,
        (("operation", "none"), ("status", "5xx")): 1,
    }
    assert named(found, "keyfold_request_seconds_count", operation="getRow") == 4


def test_the_text_is_what_the_scraper_accepts() -> None:
    metrics = Metrics()
    metrics.take("service")
    metrics.count(Counted.TASK_ROWS, "merge", TaskOutcome.SUCCEEDED, amount=5)
    hostile = 'a"\\\n}'
    reported = [Reading(Measured.STAGED_BYTES, ("shop", hostile), 3.0)]
    plain, plain_type = exposed(metrics, reported, "text/plain")
    newer, newer_type = exposed(metrics, reported, OPENMETRICS)
    assert (plain_type.split(";")[0], newer_type.split(";")[0]) == ("text/plain", "application/openmetrics-text")
    for found in (series(plain.decode()), series(newer.decode(), parse_openmetrics)):
        assert named(found, "keyfold_task_rows_total", kind="merge", outcome="succeeded") == 5
        assert named(found, "keyfold_staged_bytes", database="shop", table=hostile) == 3
        assert named(found, "process_resident_memory_bytes", process="service") > 1_000_000


def test_names_are_in_one_form_and_their_kinds_agree() -> None:
    names = [entry.exposed_name for entry in ENTRIES]
    assert len(set(names)) == len(names)
    for entry in ENTRIES:
        assert entry.name.startswith(("keyfold_", "process_"))
        assert bool(entry.bounds) is (entry.kind is Kind.HISTOGRAM)
        assert list(entry.bounds) == sorted(entry.bounds)
        assert entry.meaning.endswith(".")
