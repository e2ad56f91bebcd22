"""What the service says of a Spark that does not begin."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from app.settings import Settings
from app.spark import SPARK, SparkExecutor, SparkWatch
from app.telemetry.entries import SparkState
from app.telemetry.metrics import Metrics

PATIENCE_SECONDS = 10.0


class Spark(SparkExecutor):
    """Answers once it is told to."""

    def __init__(self) -> None:
        super().__init__(Settings())
        self.answers = False
        self.asked = 0

    def ready(self) -> bool:
        self.asked += 1
        return self.answers


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


@pytest.mark.slow(reason="a watch looks in its own time")
def test_a_spark_that_does_not_begin_is_reported_once_a_minute_until_it_does(caplog: pytest.LogCaptureFixture) -> None:
    spark, metrics, seconds = Spark(), Metrics(processes=("service", SPARK)), [100.0]
    watch = SparkWatch(spark, metrics, clock=lambda: seconds[0])
    watch.start()
    try:
        until(lambda: spark.asked >= 2)
        assert caplog.messages == []
        for waited in (60, 125):
            seconds[0] = 100.0 + waited
            said, asked = len(caplog.messages), spark.asked
            until(lambda said=said: len(caplog.messages) > said)  # type: ignore[misc]
            until(lambda asked=asked: spark.asked >= asked + 3)  # type: ignore[misc]  # it is not told each time
            assert len(caplog.messages) == said + 1
            assert f"has not answered its first queries for {waited} s; batches are accepted" in caplog.messages[-1]
        assert metrics.spark is SparkState.STARTING
        spark.answers = True
        until(lambda: metrics.spark is SparkState.READY)
    finally:
        watch.close()
