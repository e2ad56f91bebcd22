"""The last hour of the metrics: one process samples, all read, and steps say what grew."""

from __future__ import annotations

import math

import pytest

from app.telemetry.entries import NO_OPERATION, Counted, Measured
from app.telemetry.exposition import Reading
from app.telemetry.hour import HOUR_SECONDS, SAMPLE_SECONDS, STEP_SECONDS, Hour, quantile
from app.telemetry.metrics import Metrics
from tests.telemetry.test_metrics import in_a_fork

BEGIN = 1_800_000_000.0


@pytest.fixture
def hour() -> Hour:
    return Hour(Metrics(("getRow", "putRow"), ("api-1", "api-2")))


def test_what_one_process_samples_another_reads_also_when_it_is_gone(hour: Hour) -> None:
    def serve() -> None:
        hour.metrics.take("api-1")
        hour.note(BEGIN, ())
        hour.metrics.count(Counted.ACCEPTED_RECORDS, amount=60)
        hour.note(BEGIN + STEP_SECONDS, ())

    in_a_fork(serve)
    (step,) = hour.steps(BEGIN + STEP_SECONDS)
    assert step.a_second(Counted.ACCEPTED_RECORDS) == 60 / STEP_SECONDS


def test_operations_are_reported_together_and_what_is_none_apart(hour: Hour) -> None:
    hour.note(BEGIN, ())
    for operation in ("getRow", "putRow", "putRow", NO_OPERATION):
        hour.metrics.answered(operation, 2, 0.004)
    hour.note(BEGIN + STEP_SECONDS, ())
    (step,) = hour.steps(BEGIN + STEP_SECONDS)
    assert step.grown(Counted.REQUESTS, "2xx") == [3]
    assert step.grown(Counted.REQUESTS, NO_OPERATION, "2xx") == [1]
    grown = step.grown(Counted.REQUEST_SECONDS)
    assert grown
    assert (sum(grown[:-1]), round(grown[-1], 6)) == (3, 0.012)


def test_what_is_told_of_tables_is_added_and_of_ages_the_oldest_counts(hour: Hour) -> None:
    hour.note(BEGIN, ())
    reported = [
        (Measured.STAGED_RECORDS, 5.0),
        (Measured.STAGED_RECORDS, 7.0),
        (Measured.STAGED_AGE, 3.0),
        (Measured.STAGED_AGE, 1.0),
    ]
    hour.note(BEGIN + STEP_SECONDS, [Reading(metric, ("shop", "wide"), number) for metric, number in reported])
    (step,) = hour.steps(BEGIN + STEP_SECONDS)
    assert (step.now(Measured.STAGED_RECORDS), step.now(Measured.STAGED_AGE)) == (12, 3)


def test_what_nobody_could_tell_is_none_and_not_nothing(hour: Hour) -> None:
    hour.note(BEGIN, [Reading(Measured.PROCESS_CPU, ("api-1",), 9.0)])
    hour.note(BEGIN + STEP_SECONDS, [Reading(Measured.PROCESS_CPU, ("api-1",), 1.0)])  # started anew
    (step,) = hour.steps(BEGIN + STEP_SECONDS)
    assert step.now(Measured.STAGED_RECORDS) is None
    assert step.a_second(Measured.PROCESS_CPU, "api-1") is None
    assert step.a_second(Measured.PROCESS_CPU, "api-2") is None


def test_the_hour_has_an_hour_and_forgets_what_is_older(hour: Hour) -> None:
    for number in range(1_000):
        hour.note(BEGIN + number * SAMPLE_SECONDS, ())
    now = BEGIN + 999 * SAMPLE_SECONDS
    found = hour.samples(now)
    assert (found[0].at, found[-1].at, len(found)) == (now - HOUR_SECONDS, now, HOUR_SECONDS / SAMPLE_SECONDS + 1)
    assert len(hour.steps(now)) == HOUR_SECONDS / STEP_SECONDS
    assert hour.samples(now + 2 * HOUR_SECONDS) == []


def test_where_the_service_stood_still_a_step_is_longer(hour: Hour) -> None:
    hour.note(BEGIN, ())
    hour.metrics.count(Counted.ACCEPTED_RECORDS, amount=600)
    hour.note(BEGIN + 600, ())
    (step,) = hour.steps(BEGIN + 600)
    assert (step.seconds, step.a_second(Counted.ACCEPTED_RECORDS)) == (600, 1)


def test_a_quantile_lies_in_its_bucket() -> None:
    assert quantile((1.0, 2.0, 4.0), (0, 0, 0, 0), 0.5) is None
    assert quantile((1.0, 2.0, 4.0), (0, 10, 0, 0), 0.5) == 1.5
    assert quantile((1.0, 2.0, 4.0), (98, 0, 2, 0), 0.99) == 3.0
    assert quantile((1.0, 2.0, 4.0), (0, 0, 0, 1), 0.5) == 4.0
    found = quantile((1.0, 2.0), (1, 1, 1), 1e-9)
    assert found is not None
    assert not math.isnan(found)
