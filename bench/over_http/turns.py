"""Turns: each contender serves requests for a while, one after the other, round after round; medians as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from statistics import median

from bench.figures import interleaved, table
from bench.over_http.client import CONNECTIONS, Load, load
from bench.served.processes import Server

TURN_SECONDS = 3.0
WARM_UPS = 1
LEAST_ROUNDS = 5


@dataclass(frozen=True)
class Contender:
    """A server that is measured: ``requests`` draws those of a turn, each of which must be answered with ``status``.

    ``store`` is the database behind the server; ``seconds`` are those of a turn.
    """

    server: Server
    requests: Callable[[], Sequence[bytes]]
    status: int = 200
    store: Server | None = None
    connections: int = CONNECTIONS
    seconds: float = TURN_SECONDS

    def turn(self) -> Turn:
        """Serve for some seconds. Raises ``RuntimeError`` for an answer of another status."""
        requests = self.requests()
        before = self.server.cpu_seconds(), self._store_cpu()
        came = load(self.server.url, requests, self.seconds, self.connections)
        after = self.server.cpu_seconds(), self._store_cpu()
        if set(came.statuses) != {self.status}:
            raise RuntimeError(f"{requests[0]!r} was answered with {came.statuses}, not only {self.status}")
        return _turn(came, after[0] - before[0], after[1] - before[1])

    def _store_cpu(self) -> float:
        return self.store.cpu_seconds() if self.store else 0.0


@dataclass(frozen=True)
class Turn:
    """What one turn showed; CPU is of each request, of all processes of the server, of its store, of the client."""

    cpu_micros: float
    store_micros: float
    client_micros: float
    a_second: float
    p50_millis: float
    p99_millis: float


def _turn(came: Load, cpu_seconds: float, store_seconds: float) -> Turn:
    micros = 1e6 / len(came.latencies)
    return Turn(
        cpu_micros=cpu_seconds * micros,
        store_micros=store_seconds * micros,
        client_micros=came.cpu_seconds * micros,
        a_second=len(came.latencies) / came.seconds,
        p50_millis=came.latency(0.50) * 1e3,
        p99_millis=came.latency(0.99) * 1e3,
    )


Turns = Mapping[str, Sequence[Turn]]


def cpu(turn: Turn) -> float:
    """The server's CPU of a request in microseconds."""
    return turn.cpu_micros


def p50(turn: Turn) -> float:
    """The latency of the request in the middle, in milliseconds."""
    return turn.p50_millis


def p99(turn: Turn) -> float:
    """The latency of the slowest request but one in a hundred, in milliseconds."""
    return turn.p99_millis


def rate(turn: Turn) -> float:
    """Requests a second."""
    return turn.a_second


@dataclass(frozen=True)
class Goal:
    """``of`` divided by ``to`` in medians of ``what``, and what issue 9 wants of it; no ``target``: it is stated."""

    name: str
    what: Callable[[Turn], float]
    of: str
    to: str
    target: str = ""

    def line(self, turns: Turns) -> Sequence[str]:
        """Its row in a table."""
        return self.name, f"{middle(turns, self.of, self.what) / middle(turns, self.to, self.what):.2f}", self.target


def middle(turns: Turns, name: str, what: Callable[[Turn], float]) -> float:
    """The median of what the turns of a contender showed."""
    return median(map(what, turns[name]))


def take_turns(contenders: Mapping[str, Contender], rounds: int) -> Turns:
    """Each contender in each round, every second round backwards."""
    steps = {name: contender.turn for name, contender in contenders.items()}
    return interleaved(steps, max(LEAST_ROUNDS, rounds), WARM_UPS)


def turns_table(turns: Turns) -> Iterator[str]:
    """The medians of each contender."""
    head = ("", "CPU µs", "least", "requests/s", "p50 ms", "p99 ms", "store's CPU µs", "client's CPU µs")
    yield from table(head, [(name, *_medians(taken)) for name, taken in turns.items()])


def _medians(taken: Sequence[Turn]) -> Iterator[str]:
    columns = zip(*map(astuple, taken), strict=True)
    micros, store, client, a_second, middle_, slow = map(median, columns)
    yield from (f"{micros:.0f}", f"{min(map(cpu, taken)):.0f}", f"{a_second:,.0f}", f"{middle_:.2f}", f"{slow:.2f}")
    yield from (f"{store:.0f}" if store else "", f"{client:.0f}")


def goals_table(turns: Turns, goals: Sequence[Goal]) -> Iterator[str]:
    """Yield a table of the targets and the measured ratios, without those whose contenders were not measured."""
    lines = [goal.line(turns) for goal in goals if goal.of in turns and goal.to in turns]
    if lines:
        yield from ("", *table(("ratio of medians", "measured", "target"), lines))
