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
    """One plot: its lines by name, with the class of their colour and what they measure of each step."""

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
    """Show the part that changes, which is polled."""
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
    lines = [Line(name, colour, [(one.after.at, measure(one)) for one in steps]) for name, colour, measure in measured]
    return Plot(entry.title, entry.meaning, entry.says, lines, now, entry.scaled)


def _answered(*statuses: str) -> Measure:
    """Return requests of the API a second that were answered with a status of one of these classes."""

    def measure(step: Step) -> float | None:
        rates = [step.a_second(Counted.REQUESTS, status) for status in statuses]
        return None if None in rates else sum(one for one in rates if one is not None)

    return measure


def _beside(step: Step) -> float | None:
    """Return requests a second that no operation of the API took: pages of the console, and what its gate refused."""
    rates = [step.a_second(Counted.REQUESTS, NO_OPERATION, status) for status in ("1xx", "2xx", "3xx", "4xx", "5xx")]
    return None if None in rates else sum(one for one in rates if one is not None)


def _answer_time(share: float) -> Measure:
    """Return the seconds below which ``share`` of the API's answers took."""

    def measure(step: Step) -> float | None:
        grown = step.grown(Counted.REQUEST_SECONDS)
        return None if grown is None else quantile(Counted.REQUEST_SECONDS.value.bounds, grown[:-1], share)

    return measure


def _task_time(kind: str) -> Measure:
    """Return the seconds that a merge or compaction took, on the average of those that ended."""

    def measure(step: Step) -> float | None:
        grown = [step.grown(Counted.TASK_SECONDS, kind, outcome) for outcome in TaskOutcome]
        known = [one for one in grown if one is not None]
        ended = sum(sum(one[:-1]) for one in known)
        return sum(one[-1] for one in known) / ended if ended else None

    return measure


def _lookups(images: str) -> Measure:
    """Return keys a second that were answered by images alone, or not."""

    def measure(step: Step) -> float | None:
        rates = [step.a_second(Counted.LOOKED_UP, kind, images) for kind in ("one", "many")]
        return None if None in rates else sum(one for one in rates if one is not None)

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
            ("not the API", "soft", _beside),
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
    """Processor time and memory of each kind of process: those that serve are reported together."""
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
        known = [one for one in (step.a_second(Measured.PROCESS_CPU, name) for name in names) if one is not None]
        return sum(known) if known else None

    return measure


def _memory(names: Iterable[str]) -> Measure:
    def measure(step: Step) -> float | None:
        known = [one for one in (step.now(Measured.PROCESS_MEMORY, name) for name in names) if one is not None]
        return sum(known) if known else None

    return measure


@dataclass(frozen=True)
class _Process:
    """A process of the service as the system sees it now."""

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
    numbers = {(one.metric, one.values): one.number for one in process_readings(lives)}
    processes = []
    for life in lives:
        of = {metric: numbers.get((metric, (life.name,))) for metric in Measured}
        began = of[Measured.PROCESS_BEGAN]
        at = None if began is None else datetime.fromtimestamp(began, UTC)
        measured = (of[Measured.PROCESS_CPU], of[Measured.PROCESS_MEMORY], of[Measured.PROCESS_FILES])
        processes.append(_Process(life.name, life.pid, life.starts, _restarts(life.name, steps), *measured, at))
    return processes


def _restarts(name: str, steps: Sequence[Step]) -> int:
    """Return how often the process was started again in the last hour; the first start is none."""
    grown = (step.grown(Measured.PROCESS_STARTS, name) for step in steps)
    return sum(int(one[0]) for one in grown if one is not None)


@dataclass(frozen=True)
class _Tiles:
    """What a scrape says of the service as a whole; 0 if the catalog did not answer it."""

    failing_tables: int
    set_aside: int
    damaged_files: int
    images: int
    image_bytes: int


def _tiles(visit: Visit) -> _Tiles:
    readings: list[Reading] | None = anyio.from_thread.run(visit.parts.scrapes.now)
    numbers = {one.metric: int(one.number) for one in readings or () if not one.values}
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
    """The state that Spark has been in for the last ``seconds`` of the hour, and how often it was another before."""

    state: SparkState
    seconds: float
    changes: int


def _spark(steps: Sequence[Step]) -> _Spark | None:
    """None before the first sample says."""
    said = [(state, step) for step in steps for state in SparkState if step.now(Counted.SPARK, state)]
    if not said:
        return None
    state, last = said[-1]
    changes = [one for one, before in zip(said[1:], said, strict=False) if one[0] is not before[0]]
    begin = changes[-1][1] if changes else said[0][1]
    return _Spark(state, last.after.at - begin.before.at, len(changes))


PAGES: Final = (
    Page("GET", OPERATIONS_PATH, show_operations),
    Page("GET", f"{OPERATIONS_PATH}/hour", show_hour, whole=False),
)
