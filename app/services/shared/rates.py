"""Rate limits: failures by address, requests by token, counted in the memory of one process."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cachetools import TTLCache

WINDOW_SECONDS: Final = 60.0
MOST_KEYS: Final = 10_000  # keys that are counted at a time; a new one evicts the least recently seen
_IPV6_NETWORK_BITS: Final = 64  # the prefix of one customer, within which addresses change


@dataclass
class _Window:
    """The events since ``began`` (seconds of the clock)."""

    began: float
    count: int = 0


class Rate:
    """At most ``most`` events of a key within a minute of its first one; None for any number.

    ``clock`` returns monotonic seconds.
    """

    def __init__(self, most: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._windows: TTLCache[str, _Window] = TTLCache(MOST_KEYS, WINDOW_SECONDS, timer=clock)

    def spend(self, key: str) -> float:
        """Count an event of ``key``. Return after how many seconds the next is allowed; 0 if this one is."""
        if self._most is None:
            return 0.0
        with self._lock:
            window = self._windows.get(key)
            if window is None:
                window = self._windows[key] = _Window(self._clock())
            window.count += 1
        return 0.0 if window.count <= self._most else max(0.001, window.began + WINDOW_SECONDS - self._clock())


@dataclass(frozen=True)
class Rates:
    """The rate limits of a process: of failures by address, of requests by the token's name."""

    failures: Rate
    requests: Rate


def network_of(address: str | None) -> str:
    """Return the network under which an address is counted: an IPv4 address itself, an IPv6 address by its prefix.
    Empty for none.
    """
    if address is None or ":" not in address:
        return address or ""
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], _IPV6_NETWORK_BITS), strict=False))
    except ValueError:
        return address
