"""What is done again and again: it survives its failures, waits to be asked, and ends when it is told."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.core.errors import Unavailable
from app.services.shared.background import Repeated

PATIENCE_SECONDS = 20


@contextmanager
def running(repeated: Repeated) -> Iterator[Repeated]:
    repeated.start()
    try:
        yield repeated
    finally:
        repeated.close()


@pytest.mark.parametrize("error", [Unavailable("the catalog does not answer"), ZeroDivisionError("a mistake of ours")])
def test_a_step_that_fails_is_reported_and_is_no_end(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    done: queue.Queue[int] = queue.Queue()
    outcomes = iter([error])

    def step() -> None:
        done.put(1)
        for one in outcomes:
            raise one

    with running(Repeated("sums", step, lambda: 0.001)):
        for _ in range(3):
            done.get(timeout=PATIENCE_SECONDS)
    assert [str(error) in caplog.text, "sums failed and is retried" in caplog.text] == [True, True]


def test_a_reason_that_stays_is_logged_once_and_another_one_at_once(caplog: pytest.LogCaptureFixture) -> None:
    done: queue.Queue[int] = queue.Queue()
    outcomes = iter(["it is away"] * 5 + ["it is full"])

    def step() -> None:
        done.put(1)
        for one in outcomes:
            raise Unavailable(one)

    with running(Repeated("sums", step, lambda: 0.001)):
        for _ in range(8):
            done.get(timeout=PATIENCE_SECONDS)
    assert [caplog.text.count(reason) for reason in ("it is away", "it is full")] == [1, 1]


def test_it_waits_until_somebody_asks_and_several_share_a_step() -> None:
    begun, go, steps = queue.Queue[int](), threading.Event(), []

    def step() -> None:
        steps.append(1)
        begun.put(len(steps))
        go.wait(PATIENCE_SECONDS)

    with running(Repeated("sums", step, lambda: 0.0, on_demand=True)) as repeated:
        with pytest.raises(queue.Empty):
            begun.get(timeout=0.05)
        repeated.ask()
        assert begun.get(timeout=PATIENCE_SECONDS) == 1
        for _ in range(5):  # while the first is under way
            repeated.ask()
        go.set()
        assert begun.get(timeout=PATIENCE_SECONDS) == 2
        with pytest.raises(queue.Empty):
            begun.get(timeout=0.05)


@pytest.mark.parametrize("on_demand", [True, False])
def test_what_waits_ends_when_it_is_closed_without_another_step(on_demand: bool) -> None:
    steps: list[int] = []
    repeated = Repeated("sums", lambda: steps.append(1), lambda: 0.0 if on_demand else 3600.0, on_demand=on_demand)
    before = threading.active_count()
    repeated.start()
    repeated.close(PATIENCE_SECONDS)
    assert (steps, threading.active_count()) == ([], before)


def test_what_never_began_can_be_closed() -> None:
    Repeated("sums", lambda: None, lambda: 0.0).close()
