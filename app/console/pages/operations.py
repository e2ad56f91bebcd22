"""Operations in the last hour: plots, processes, and the tasks of workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import anyio.from_thread
from starlette.responses import Response

from app.console.pages.home import service_parts
from app.console.parts.plots import Line, Plot, Says, Scale, by_powers, from_nothing, of_bytes
from app.console.site.visits import Page, Visit
from app.core.access import Role
from app.core.quantities import briefly, numbered, sized
from app.services.operating.overview import tables_behind
from app.telemetry.entries import NO_OPERATION, Counted, Measured, SparkState, TaskOutcome
from app.telemetry.exposition import Reading, process_readings
from app.telemetry.hour import Hour, Step, quantile

OPERATIONS_PATH: Final = "/console/operations"
MOST_LEASES: Final = 50
MOST_BEHIND: Final = 10
_FRAGMENT: Final = "operations/hour.html"
_AS_TABLES: Final = "tables"
Measure = Callable[[Step], float | None]


@dataclass(frozen=True)
class _Entry:
    """One plot. A line is its name, the CSS class of its colour, and the function that measures a step."""

    title: str
    meaning: str
    says: Says
    lines: Sequence[tuple[str, str, Measure]]
    scaled: Callable[[Sequence[float]], Scale] = from_nothing


def show_operations(visit: Visit) -> Response:
    """Show the whole page."""
    context = _context(visit)
    return visit.page("operations/operations.html", **context, digest=visit.digest(_FRAGMENT, **context))


def show_hour(visit: Visit) -> Response:
    """Show the changing part of the page, which the browser polls."""
    return visit.fragment(_FRAGMENT, **_context(visit))


def _context(visit: Visit) -> dict[str, Any]:
    visit.grant.check_service(Role.READ)
    hour, now = visit.parts.hour, time.time()
    steps = hour.steps(now)
    with visit.parts.database.reading() as repository:
        leases, waiting = repository.workers.leases(MOST_LEASES), repository.workers.waiting()
        behind = tables_behind(repository, MOST_BEHIND)
    return {
        "as_tables": visit.param("as") == _AS_TABLES,
        "parts": service_parts(visit),
        "tiles": _tiles(visit),
        "spark": _spark(steps),
        "plots": [_plot(entry, steps, now) for entry in (*PLOTS, *_of_processes(hour))],
        "processes": _processes(hour, steps),
        "behind": behind,
        "leases": leases,
        "waiting": waiting,
    }


def _plot(entry: _Entry, steps: Sequence[Step], now: float) -> Plot:
    measured = ((name, colour, measure) for name, colour, measure in entry.lines)
    lines = [
        Line(name, colour, [(step.after.at, measure(step)) for step in steps]) for name, colour, measure in measured
    ]
    return Plot(entry.title, entry.meaning, entry.says, lines, now, entry.scaled)


def _answered(*statuses: str) -> Measure:
    """Return the measure of API requests a second that were answered with a status of one of these classes."""

    def measure(step: Step) -> float | None:
        rates = [step.a_second(Counted.REQUESTS, status) for status in statuses]
        return _sum_of_known(rates)

    return measure


def _without_operation(step: Step) -> float | None:
    """Return requests a second outside the API's operations: console pages, and requests that the gate refused."""
    rates = [step.a_second(Counted.REQUESTS, NO_OPERATION, status) for status in ("1xx", "2xx", "3xx", "4xx", "5xx")]
    return _sum_of_known(rates)


def _sum_of_known(rates: Sequence[float | None]) -> float | None:
    """Return the sum; None if one of ``rates`` is unknown."""
    return None if None in rates else sum(rate for rate in rates if rate is not None)


def _answer_time(share: float) -> Measure:
    """Return the measure of seconds within which ``share`` (0 to 1) of the API's requests were answered."""

    def measure(step: Step) -> float | None:
        grown = step.grown(Counted.REQUEST_SECONDS)
        return None if grown is None else quantile(Counted.REQUEST_SECONDS.value.bounds, grown[:-1], share)

    return measure


def _task_time(kind: str) -> Measure:
    """Return the measure of the average seconds of the merges or compactions that ended in a step."""

    def measure(step: Step) -> float | None:
        grown = [step.grown(Counted.TASK_SECONDS, kind, outcome) for outcome in TaskOutcome]
        # Of each histogram: the counts of its buckets, then the sum of seconds.
        known = [histogram for histogram in grown if histogram is not None]
        ended = sum(sum(histogram[:-1]) for histogram in known)
        return sum(histogram[-1] for histogram in known) / ended if ended else None

    return measure


def _lookups(images: str) -> Measure:
    """Return the measure of keys a second that images alone answered (``hit``), or not (``miss``)."""

    def measure(step: Step) -> float | None:
        rates = [step.a_second(Counted.LOOKED_UP, kind, images) for kind in ("one", "many")]
        return _sum_of_known(rates)

    return measure


def _gauge(metric: Measured) -> Measure:
    return lambda step: step.now(metric)


PLOTS: Final = (
    _Entry(
        "Requests",
        "a second",
        numbered,
        [
            ("answered", "green", _answered("1xx", "2xx", "3xx")),
            ("refused, 4xx", "orange", _answered("4xx")),
            ("failed, 5xx", "red", _answered("5xx", "gone")),
            ("not the API", "soft", _without_operation),
        ],
    ),
    _Entry(
        "Answer time",
        "of the API",
        briefly,
        [("half below (p50)", "blue", _answer_time(0.5)), ("99 % below (p99)", "orange", _answer_time(0.99))],
        by_powers,
    ),
    _Entry(
        "Accepted records",
        "a second",
        numbered,
        [("records", "blue", lambda step: step.a_second(Counted.ACCEPTED_RECORDS))],
    ),
    _Entry("Staged records", "of all tables", numbered, [("records", "blue", _gauge(Measured.STAGED_RECORDS))]),
    _Entry("Oldest staged batch", "of all tables", briefly, [("age", "blue", _gauge(Measured.STAGED_AGE))]),
    _Entry(
        "Merges",
        "seconds each, on the average",
        briefly,
        [("merges", "blue", _task_time("merge")), ("compactions", "orange", _task_time("compaction"))],
    ),
    _Entry(
        "Lookups",
        "keys a second",
        numbered,
        [("by images alone", "green", _lookups("hit")), ("with state rows", "orange", _lookups("miss"))],
    ),
)
_COLOURS: Final = ("blue", "orange", "green", "grey")


def _of_processes(hour: Hour) -> list[_Entry]:
    """Return the plots of processor time and memory by kind of process. All serving processes are one kind."""
    kinds: dict[str, list[str]] = {}
    for life in hour.metrics.lives():
        kinds.setdefault(life.name.partition("-")[0], []).append(life.name)
    coloured = [(kind, colour, names) for (kind, names), colour in zip(kinds.items(), _COLOURS, strict=False)]
    processor = [(kind, colour, _cpu(names)) for kind, colour, names in coloured]
    memory = [(kind, colour, _memory(names)) for kind, colour, names in coloured]
    return [
        _Entry("Processor", "100 % is one core", _share, processor),
        _Entry("Memory", "resident", lambda size: sized(int(size)), memory, of_bytes),
    ]


def _share(part: float) -> str:
    return f"{numbered(part * 100)} %"


def _cpu(names: Iterable[str]) -> Measure:
    def measure(step: Step) -> float | None:
        rates = (step.a_second(Measured.PROCESS_CPU, name) for name in names)
        known = [rate for rate in rates if rate is not None]
        return sum(known) if known else None

    return measure


def _memory(names: Iterable[str]) -> Measure:
    def measure(step: Step) -> float | None:
        sizes = (step.now(Measured.PROCESS_MEMORY, name) for name in names)
        known = [size for size in sizes if size is not None]
        return sum(known) if known else None

    return measure


@dataclass(frozen=True)
class _Process:
    """A process of the service: what the operating system reports of it now."""

    name: str
    pid: int
    starts: int
    restarts: int
    cpu_seconds: float | None
    memory_bytes: float | None
    files: float | None
    began_at: datetime | None


def _processes(hour: Hour, steps: Sequence[Step]) -> list[_Process]:
    lives = hour.metrics.lives()
    numbers = {(reading.metric, reading.values): reading.number for reading in process_readings(lives)}
    processes = []
    for life in lives:
        by_metric = {metric: numbers.get((metric, (life.name,))) for metric in Measured}
        began = by_metric[Measured.PROCESS_BEGAN]
        at = None if began is None else datetime.fromtimestamp(began, UTC)
        used = (by_metric[Measured.PROCESS_CPU], by_metric[Measured.PROCESS_MEMORY], by_metric[Measured.PROCESS_FILES])
        processes.append(_Process(life.name, life.pid, life.starts, _restarts(life.name, steps), *used, at))
    return processes


def _restarts(name: str, steps: Sequence[Step]) -> int:
    """Return how often the process was restarted in the last hour; its first start does not count."""
    grown = (step.grown(Measured.PROCESS_STARTS, name) for step in steps)
    return sum(int(starts[0]) for starts in grown if starts is not None)


@dataclass(frozen=True)
class _Tiles:
    """The figures of the whole service from the last scrape; 0 if the catalog did not answer it."""

    failing_tables: int
    set_aside: int
    damaged_files: int
    images: int
    image_bytes: int


def _tiles(visit: Visit) -> _Tiles:
    readings: list[Reading] | None = anyio.from_thread.run(visit.parts.scrapes.now)
    numbers = {reading.metric: int(reading.number) for reading in readings or () if not reading.values}
    shown = (
        Measured.FAILING_TABLES,
        Measured.SET_ASIDE_BATCHES,
        Measured.DAMAGED_FILES,
        Measured.IMAGES,
        Measured.IMAGE_BYTES,
    )
    return _Tiles(*(numbers.get(metric, 0) for metric in shown))


@dataclass(frozen=True)
class _Spark:
    """Spark's current state, the seconds since it began (at most the hour), and the changes of state in the hour."""

    state: SparkState
    seconds: float
    changes: int


def _spark(steps: Sequence[Step]) -> _Spark | None:
    """Return the state of Spark; None before the first sample has one."""
    states = [(state, step) for step in steps for state in SparkState if step.now(Counted.SPARK, state)]
    if not states:
        return None
    state, last = states[-1]
    changes = [after for after, before in zip(states[1:], states, strict=False) if after[0] is not before[0]]
    begin = changes[-1][1] if changes else states[0][1]
    return _Spark(state, last.after.at - begin.before.at, len(changes))


PAGES: Final = (
    Page("GET", OPERATIONS_PATH, show_operations),
    Page("GET", f"{OPERATIONS_PATH}/hour", show_hour, whole=False),
)
