"""Javas and collectors beside each other: what the embedded server costs from its start to a warm compaction.

``KEYFOLD_BENCH_JAVAS`` names further ``java`` programs, parted by colons, beside the one that a service would take.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from app.core.table.history import Table
from app.settings import Settings
from app.spark import SparkExecutor
from bench.figures import table
from bench.processes import cpu_seconds
from bench.site import BenchSite
from bench.sizes import Sizes
from bench.wide_table import batch_records
from spark_jobs.executor import SparkJobs
from spark_jobs.java import AHEAD_OF_TIME, CLASS_DATA, class_archives, find_java, java_major_version
from spark_jobs.server import EmbeddedServer
from spark_jobs.session import SparkConnection

ROWS, BATCHES, SMALL, SMALL_MERGES = 100_000, 4, 10, 20
HEAP_BYTES = 2 * 2**30
NO_ARCHIVE = "no class archive"
NOT_PARALLEL = "-XX:-UseParallelGC"  # the server's own choice, which comes before its further options
OPTIONS: Mapping[str, Sequence[str]] = {
    "as it is": (),
    "serial collector": (NOT_PARALLEL, "-XX:+UseSerialGC"),
    "G1": (NOT_PARALLEL, "-XX:+UseG1GC"),
    "C1 only": ("-XX:TieredStopAtLevel=1",),
}
# By how the archive that there is is called.
_WITHOUT = {CLASS_DATA: ("-Xshare:auto", "-XX:SharedArchiveFile=/nowhere"), AHEAD_OF_TIME: ("-XX:AOTMode=off",)}
_KINDS = (("compiler", ("C1 ", "C2 ")), ("collector", ("GC ", "G1 ", "VM ")), ("tasks", ("Executor",)))
STEPS = (
    "start and first queries",
    f"{SMALL_MERGES} merges of {SMALL}",
    "first large merge",
    "three more",
    "first compaction",
    "second compaction, after a merge",
)


class _OnJava(SparkExecutor):
    """Spark on a server of the benchmark's own making."""

    def __init__(self, settings: Settings, server: EmbeddedServer) -> None:
        super().__init__(settings)
        self._server = server

    def open(self) -> SparkJobs:
        """See ``SparkExecutor.open``."""
        with self._lock:
            if self._jobs is None:
                self._jobs = SparkJobs(self._server.folder, None, "local[*]", HEAP_BYTES)
                self._jobs.server, self._jobs.connection = self._server, SparkConnection(self._server)
        self._jobs.start()
        return self._jobs


@dataclass(frozen=True)
class _Step:
    """What a step took: seconds by the clock, and of the JVM's CPU by what its threads do."""

    clock: float
    cpu: Mapping[str, float]


def measure_javas(sizes: Sizes) -> Iterator[Sequence[str]]:
    """CPU seconds of the JVM by step, and its memory in the end: a table for each Java, a row for each set of
    options.
    """
    rows = sizes.rows(ROWS)
    about = (
        "Seconds by the clock, and of the JVM's CPU (of these the JIT compiler's / the collector's), of a server from "
        f"its start on: merges of {SMALL} records, then {BATCHES} merges of {rows:,} of the wide table, and two full "
        f"compactions. {HEAP_BYTES // 2**30} GiB of heap."
    )
    yield ["### Javas", "", about]
    others = filter(None, os.environ.get("KEYFOLD_BENCH_JAVAS", "").split(":"))
    for program in (find_java(), *(Path(one).resolve() for one in others)):
        sets = dict(OPTIONS)
        for archive in class_archives(program)[:1]:
            sets[NO_ARCHIVE] = _WITHOUT[archive.suffix]
        found = [_row(name, *_measured(sizes, program, options)) for name, options in sets.items()]
        yield list(table((f"Java {java_major_version(program)}", *STEPS, "all", "MiB in the end"), found))


def _row(name: str, steps: Sequence[_Step], memory: int) -> Sequence[str]:
    whole = _Step(sum(one.clock for one in steps), sum((Counter(one.cpu) for one in steps), Counter()))
    return name, *map(_shown, (*steps, whole)), f"{memory // 2**20:,}"


def _shown(step: _Step) -> str:
    parts = " / ".join(f"{step.cpu.get(kind, 0.0):.1f}" for kind in ("compiler", "collector"))
    return f"{step.clock:.1f}; {sum(step.cpu.values()):.1f} ({parts})"


def _measured(sizes: Sizes, program: Path, options: Sequence[str]) -> tuple[list[_Step], int]:
    with TemporaryDirectory(prefix="keyfold-bench-") as made:
        folder = Path(made)
        server = EmbeddedServer(folder / "spark", heap_bytes=HEAP_BYTES, java=program, java_options=options)
        site = BenchSite(folder, _OnJava(Settings(KEYFOLD_DATA=folder), server))
        steps = []
        try:
            before: Mapping[str, float] = {}
            for work in _work(site, sizes):
                began = time.perf_counter()
                work()
                clock = time.perf_counter() - began
                process = psutil.Process(server.jvm_pid)
                now = _cpu(process)
                steps.append(_Step(clock, {kind: now[kind] - before.get(kind, 0.0) for kind in now}))
                before = now
            return steps, process.memory_info().rss
        finally:
            site.close()


def _work(site: BenchSite, sizes: Sizes) -> Iterator[Callable[[], object]]:
    """The steps, each once the one before it was measured."""
    yield site.executor.warm_up
    rows = sizes.rows(ROWS)
    small, large = site.create_table("small"), site.create_table("large")

    def merges(of: Table, numbers: range, records: int) -> None:
        for number in numbers:
            site.stage(of, batch_records(number, rows, records))
            site.merge(of)

    yield partial(merges, small, range(1, SMALL_MERGES + 1), SMALL)
    yield partial(merges, large, range(1, 2), rows)
    yield partial(merges, large, range(2, BATCHES + 1), rows)
    yield partial(site.compact, large)

    def again() -> None:
        merges(large, range(BATCHES + 1, BATCHES + 2), rows)
        site.compact(large)

    yield again


def _cpu(process: psutil.Process) -> Mapping[str, float]:
    """CPU seconds so far by what the threads do; what is neither, and of threads that ended, is the ``rest``."""
    found: Counter[str] = Counter()
    for path in Path(f"/proc/{process.pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            name = (path / "comm").read_text()
            fields = (path / "stat").read_text().rsplit(")", 1)[1].split()
            ticks = int(fields[11]) + int(fields[12])
            found.update({kind: ticks for kind, heads in _KINDS if name.startswith(heads)})
    seconds = {kind: ticks / os.sysconf("SC_CLK_TCK") for kind, ticks in found.items()}
    return {**seconds, "rest": cpu_seconds(process) - sum(seconds.values())}
