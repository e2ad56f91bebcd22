"""A client that costs little itself: HTTP/1.1 over kept-alive connections, one request at a time on each."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

import uvloop

CONNECTIONS = 32
_END = b"\r\n\r\n"
_LENGTH = b"\r\ncontent-length:"


@dataclass(frozen=True)
class Load:
    """What came of requests that were sent for a while: answers by status, and the seconds each took, in order.

    ``cpu_seconds`` are the client's own.
    """

    seconds: float
    latencies: Sequence[float]
    statuses: Counter[int]
    cpu_seconds: float

    def latency(self, share: float) -> float:
        """The seconds within which this share of the answers came."""
        return self.latencies[min(len(self.latencies) - 1, int(share * len(self.latencies)))]


def request(method: str, target: str, headers: str = "", body: bytes = b"") -> bytes:
    """The bytes of a request to this machine; ``headers`` end with a line break each."""
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    head = f"{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench\r\n{headers}{length}\r\n"
    return head.encode() + body


def load(url: str, requests: Sequence[bytes], seconds: float, connections: int = CONNECTIONS) -> Load:
    """Send ``requests``, again from the first after the last, for ``seconds``: each connection sends one when it has
    the answer to its last.

    Raises ``ConnectionError`` when the server closes a connection.
    """
    gc.collect()
    gc.disable()  # a collection would count as a slow answer
    try:
        return uvloop.run(_load(url, itertools.cycle(requests), seconds, connections))
    finally:
        gc.enable()


async def _load(url: str, requests: Iterator[bytes], seconds: float, connections: int) -> Load:
    loop, place = asyncio.get_running_loop(), urlsplit(url)
    host, port, turn = place.hostname or "", place.port or 80, _Turn(requests)
    opened = [(await loop.create_connection(lambda: _Connection(turn), host, port))[1] for _ in range(connections)]
    began, cpu = time.perf_counter(), time.process_time()
    turn.ends = began + seconds
    for connection in opened:
        connection.send()
    await asyncio.gather(*(connection.ended for connection in opened))
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    for connection in opened:
        connection.transport.close()
    return Load(took, sorted(turn.latencies), turn.statuses, cpu)


class _Turn:
    """What all connections share; ``ends`` is a moment of the performance counter."""

    def __init__(self, requests: Iterator[bytes]) -> None:
        self.requests = requests
        self.ends = 0.0
        self.latencies: list[float] = []
        self.statuses: Counter[int] = Counter()


class _Connection(asyncio.Protocol):
    """Sends a request, reads its answer to the end, sends the next."""

    transport: asyncio.Transport

    def __init__(self, turn: _Turn) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turn = turn
        self._head = b""
        self._missing = 0  # bytes of the body

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionError("the server closed a connection"))

    def send(self) -> None:
        """Send the next request."""
        self._sent = time.perf_counter()
        self.transport.write(next(self._turn.requests))

    def data_received(self, data: bytes) -> None:
        """A piece of an answer."""
        if self._missing:
            self._missing -= len(data)
        else:
            self._head += data
            end = self._head.find(_END)
            if end < 0:
                return
            self._turn.statuses[int(self._head[9:12])] += 1
            self._missing = _body_length(self._head[: end + 2]) - (len(self._head) - end - len(_END))
            self._head = b""
        if not self._missing:
            self._answered()

    def _answered(self) -> None:
        now = time.perf_counter()
        self._turn.latencies.append(now - self._sent)
        if now < self._turn.ends:
            self.send()
        else:
            self.ended.set_result(None)


def _body_length(head: bytes) -> int:
    """What the headers say; 0 without (304)."""
    place = head.lower().find(_LENGTH)
    return int(head[place + len(_LENGTH) : head.index(b"\r\n", place + 2)]) if place >= 0 else 0
