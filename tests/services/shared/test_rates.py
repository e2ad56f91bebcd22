"""Rates: so many events of a key a minute, in bounded memory."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.services.shared.rates import MOST_KEYS, WINDOW_SECONDS, Rate, network_of
from tests.services.clocks import Seconds


def test_more_than_the_most_within_a_minute_waits_for_its_end() -> None:
    seconds = Seconds()
    rate = Rate(2, seconds)
    assert [rate.spend("a"), rate.spend("a")] == [0, 0]
    seconds.time += 20
    assert rate.spend("a") == WINDOW_SECONDS - 20
    assert rate.spend("b") == 0
    seconds.time += WINDOW_SECONDS - 20
    assert rate.spend("a") == 0


def test_what_is_refused_makes_nobody_wait_longer() -> None:
    seconds = Seconds()
    rate = Rate(1, seconds)
    rate.spend("a")
    for _ in range(5):
        seconds.time += 10
        assert rate.spend("a") > 0
    seconds.time += 10
    assert rate.spend("a") == 0


def test_without_a_most_there_is_no_bound() -> None:
    rate = Rate(None)
    assert {rate.spend("a") for _ in range(1000)} == {0}


def test_many_keys_take_bounded_memory_and_the_quiet_ones_go() -> None:
    rate = Rate(1, Seconds())
    rate.spend("loud")
    for number in range(MOST_KEYS - 1):
        rate.spend(f"n{number}")
    assert rate.spend("loud") > 0
    rate.spend("one more")
    assert len(rate._windows) == MOST_KEYS
    assert rate.spend("loud") > 0
    assert rate.spend("n0") == 0


@pytest.mark.parametrize(
    ("address", "network"),
    [
        (None, ""),
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("no:address", "no:address"),
        ("testclient", "testclient"),
    ],
)
def test_an_ipv6_address_is_counted_under_its_network(address: str | None, network: str) -> None:
    assert network_of(address) == network


def test_threads_that_count_at_once_lose_nothing_and_break_nothing() -> None:
    seconds = Seconds()
    rate = Rate(1_000_000, seconds)
    began, interval = threading.Barrier(4), sys.getswitchinterval()

    def spend() -> float:
        began.wait()
        waits = 0.0
        for number in range(20_000):
            seconds.time += 0.01
            waits += rate.spend(f"a{number % 50}")
        return waits

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert sum(running.result() for running in [threads.submit(spend) for _ in range(4)]) == 0
    finally:
        sys.setswitchinterval(interval)
