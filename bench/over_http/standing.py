"""What a service takes apart from answers: memory, and processor time while idle; and what a second process gives."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import psutil

from bench.figures import table
from bench.over_http import asking
from bench.over_http.ground import Ground, Service, path_of
from bench.over_http.turns import (
    TURN_SECONDS,
    Contender,
    Goal,
    Turns,
    cpu,
    goals_table,
    middle,
    rate,
    take_turns,
    turns_table,
)
from bench.reads.orders import BIGINT, STRING
from bench.served.processes import cpu_seconds

ONE, TWO = "one process", "two processes"
IDLE_SECONDS, IDLE_SPANS = 20, 3
SETTLE_SECONDS = 120  # the JVM goes on compiling what its first jobs were made of
MEMORY_TURNS = 4
MEBIBYTE = 2**20


def two_processes(ground: Ground, one: Service, rounds: int) -> Iterator[str]:
    """Hits on one process and on two of another service of the same folder."""
    with ground.served("two", ("--processes", "2")) as two:
        drawn = asking.lookups(path_of("bigint"), BIGINT, ground.rows)
        turns = take_turns({ONE: Contender(one.server, drawn), TWO: Contender(two.server, drawn)}, rounds)
    yield from ("### Two processes", "", *turns_table(turns), *goals_table(turns, [MEASURED]), _apart(turns))


MEASURED = Goal("requests/s, two processes : one, the client on the same cores", rate, TWO, ONE)


def _apart(turns: Turns) -> str:
    """Requests that the processes could answer in a second if each had a core for itself."""
    ratio = 2 * middle(turns, ONE, cpu) / middle(turns, TWO, cpu)
    return f"| requests by second of CPU × processes, two : one, the client apart | {ratio:.2f} | ≥ 1.80 |"


def memory(ground: Ground) -> Iterator[str]:
    """The memory of services that have answered lookups in one table, and nothing else, for a while."""
    lines: list[Sequence[str]] = []
    drawn = asking.lookups(path_of("string"), STRING, ground.rows)
    for count in (1, 2):
        with ground.served(f"memory{count}", ("--processes", str(count))) as service:
            for _ in range(MEMORY_TURNS):
                Contender(service.server, drawn).turn()
            lines += [(f"{count}", *_sizes(process)) for process in service.server.family]
    head = ("`--processes`", "RSS MiB", "PSS MiB", "RSS without files MiB")
    about = (
        f"After lookups of random keys for {MEMORY_TURNS * TURN_SECONDS:.0f} s. RSS and PSS have what was read of the"
    )
    yield from ("### Memory", "", f"{about} mapped images; of two processes and their parent.", "", *table(head, lines))


def _sizes(process: psutil.Process) -> Iterator[str]:
    full = process.memory_full_info()
    yield from (f"{size / MEBIBYTE:,.0f}" for size in (full.rss, full.pss, full.rss - full.shared))


def idle(ground: Ground) -> Iterator[str]:
    """Yield the processor time and the memory that an idle service with its Spark takes, by process."""
    with ground.served("idle", (), {}) as service:
        time.sleep(SETTLE_SECONDS)
        family = service.server.family
        spans = [_taken(family) for _ in range(IDLE_SPANS)]
        names = _roles(ground.folder / "idle.log", family)
        sizes = [one.memory_full_info().pss for one in family]
    lines = [_idle_line(*one) for one in zip(names, zip(*spans, strict=True), sizes, strict=True)]
    without_java = sum(size for name, size in zip(names, sizes, strict=True) if name != "java")
    lines.append(_idle_line("all together, memory without the JVM", [sum(span) for span in spans], without_java))
    lines.append(("target", "", "< 1 %", "≤ 350"))
    head = ("process", f"CPU s in {IDLE_SECONDS} s, median", "of a core", "PSS MiB")
    yield from ("### Idle", "", "`keyfold serve` with its defaults.", "", *table(head, lines))


def _taken(family: Sequence[psutil.Process]) -> list[float]:
    """What each takes within a span of idleness."""
    before = [cpu_seconds(one) for one in family]
    time.sleep(IDLE_SECONDS)
    return [cpu_seconds(one) - seconds for one, seconds in zip(family, before, strict=True)]


def _idle_line(name: str, spans: Sequence[float], size: float) -> tuple[str, str, str, str]:
    return name, f"{median(spans):.2f}", f"{median(spans) / IDLE_SECONDS:.2%}", f"{size / MEBIBYTE:.0f}"


def _roles(log: Path, family: Sequence[psutil.Process]) -> list[str]:
    """Return the names of the processes in the service's log, or else those of the system."""
    names = dict(re.findall(r"process (\d+) is (.+)", log.read_text()))
    return [names.get(str(one.pid), one.name()) for one in family]
