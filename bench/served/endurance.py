"""What an hour of the same load leaves behind: memory of the processes, sizes of what is kept, latencies, by minute."""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import httpx
import psutil

from bench.figures import chart, table
from bench.served.processes import Server, keyfold, started
from bench.served.serving import client_of, wait_ok
from bench.sizes import Sizes

MINUTES = 60
KEYS = 50_000
RECORDS = 50
WRITERS, BATCHES_A_SECOND = 6, 1.0
READERS, LOOKUPS_A_SECOND = 193, 0.25
SCANS_A_SECOND = 1 / 15
TABLES = "/v1/catalog/databases/hour/tables"
_FIELDS = {"id": "BIGINT NOT NULL", "at": "INT", "name": "STRING", "n": "BIGINT"}
# History that is kept for minutes, so that an hour shows what the defaults show in weeks.
_KEPT = {"snapshot.time-retained": "3 min", "catalog.history-retained": "5 min", "history.time-retained": "5 min"}
_ENGINES = {
    "assembled": {"merge-engine": "partial-update", "fields.at.sequence-group": "name,n"},
    "summed": {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    "latest": {"merge-engine": "deduplicate", "changelog-producer": "input"},
}
_MIB = 2**20
KINDS = {"java": "Spark's JVM", "spark_jobs.daemon": "Spark's Python workers", "images": "builder of images"}
"""A word of the command line to the kind of process; the first that fits counts: the JVM's names the daemon, too."""


@dataclass
class Load:
    """What clients saw since it was last taken: seconds of writes and lookups, and statuses other than 2xx and 404, 0
    for each request that had no answer.
    """

    writes: list[float] = field(default_factory=list)
    lookups: list[float] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)

    def ask(self, times: list[float], client: httpx.Client, method: str, path: str, **what: object) -> None:
        """One request, its time among ``times``."""
        began, status = time.perf_counter(), 0
        with suppress(httpx.TransportError):
            status = client.request(method, path, **what).status_code  # type: ignore[arg-type]
        times.append(time.perf_counter() - began)
        if status not in (200, 202, 404):
            self.refused.append(status)


Sample = dict[str, float]
"""Name, with its unit, to what was found."""


def measure_endurance(sizes: Sizes) -> Iterator[Sequence[str]]:
    """A table of the quarters of the hour, then a curve for each figure."""
    with TemporaryDirectory(prefix="keyfold-bench-") as name:
        folder = Path(name)
        with started(keyfold(folder / "data"), folder / "log") as server, client_of(server.url) as client:
            wait_ok(client, "/readyz")
            _create_tables(client)
            samples = list(_samples(server, folder, sizes.scale * 60))
    yield list(_quarters(samples))
    yield [line for one in samples[0] for line in chart(one, "minutes", [sample[one] for sample in samples])]


def _create_tables(client: httpx.Client) -> None:
    client.post("/v1/catalog/databases", json={"name": "hour"}).raise_for_status()
    fields = [{"name": name, "type": kind} for name, kind in _FIELDS.items()]
    for name, options in _ENGINES.items():
        schema = {"fields": fields, "primaryKeys": ["id"], "options": {**_KEPT, **options}}
        identifier = {"database": "hour", "object": name}
        client.post(TABLES, json={"identifier": identifier, "schema": schema}).raise_for_status()


def _samples(server: Server, folder: Path, every_seconds: float) -> Iterator[Sample]:
    """One sample a minute (at scale 1) while clients go on."""
    load = Load()
    with client_of(server.url) as client, _clients(server.url, load):
        for _ in range(MINUTES):
            time.sleep(every_seconds)
            sample = _sample(server, folder, load, client)
            print(json.dumps(sample), file=sys.stderr, flush=True)  # an hour is long
            yield sample


@contextmanager
def _clients(url: str, load: Load) -> Iterator[None]:
    """Clients of each kind, at a steady pace, while the block runs."""
    ended = threading.Event()

    def again(act: Callable[[httpx.Client], None], a_second: float) -> None:
        with client_of(url) as client:
            due = time.monotonic()
            while not ended.wait(max(0.0, due - time.monotonic())):
                due = max(due + 1 / a_second, time.monotonic() - 1)
                act(client)

    def write(client: httpx.Client) -> None:
        load.ask(load.writes, client, "POST", f"{_some_table()}/batches", json={"records": _records()})

    def look_up(client: httpx.Client) -> None:
        load.ask(load.lookups, client, "GET", f"{_some_table()}/rows?key={random.randrange(KEYS)}&consistency=latest")

    def scan(client: httpx.Client) -> None:
        load.ask([], client, "GET", f"{_some_table()}/rows:scan?limit=10000")

    paces = [(scan, SCANS_A_SECOND), *[(write, BATCHES_A_SECOND)] * WRITERS, *[(look_up, LOOKUPS_A_SECOND)] * READERS]
    threads = [threading.Thread(target=again, args=pace) for pace in paces]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _some_table() -> str:
    return f"{TABLES}/{random.choice(list(_ENGINES))}"


def _records() -> list[dict[str, object]]:
    keys = random.sample(range(KEYS), RECORDS)
    return [{"id": key, "at": int(time.time()), "name": f"name {random.random()}", "n": 1} for key in keys]


def _sample(server: Server, folder: Path, load: Load, client: httpx.Client) -> Sample:
    writes, lookups, refused = load.writes[:], load.lookups[:], load.refused[:]
    del load.writes[: len(writes)], load.lookups[: len(lookups)], load.refused[: len(refused)]
    stats = [client.get(f"{TABLES}/{name}/stats").raise_for_status().json() for name in _ENGINES]
    data = folder / "data"
    return {
        **_memory(server.family),
        "catalog (MiB)": sum(map(_size, data.glob("catalog*"))) / _MIB,
        "log (KiB)": _size(folder / "log") / 2**10,
        "warehouse (MiB)": sum(map(_size, _files(data / "warehouse"))) / _MIB,
        "files of the warehouse": sum(1 for _ in _files(data / "warehouse")),
        "images (MiB)": sum(map(_size, _files(data / "images"))) / _MIB,
        "staged records": sum(stat["staged"]["records"] for stat in stats),
        "lookup, median (ms)": _milliseconds(lookups, 0.5),
        "lookup, p99 (ms)": _milliseconds(lookups, 0.99),
        "POST, median (ms)": _milliseconds(writes, 0.5),
        "POST, p99 (ms)": _milliseconds(writes, 0.99),
        "writes": len(writes),
        "refused": len(refused) - refused.count(0),
        "unanswered": refused.count(0),
    }


def _memory(family: Sequence[psutil.Process]) -> Sample:
    """What each kind of process holds; what several share counts once."""
    figures = dict.fromkeys([*(f"{kind} (MiB)" for kind in ("service", *KINDS.values())), "open files"], 0.0)
    for process in family:
        try:
            command = " ".join(process.cmdline())
            kind = next((kind for word, kind in KINDS.items() if word in command), "service")
            figures[f"{kind} (MiB)"] += process.memory_full_info().pss / _MIB
            figures["open files"] += process.num_fds()
        except psutil.NoSuchProcess:
            continue
    return figures


def _files(folder: Path) -> Iterator[Path]:
    """The files below; what is swept meanwhile is none."""
    return (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # swept meanwhile
        return 0


def _milliseconds(times: Sequence[float], share: float) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000 if ordered else 0.0


def _quarters(samples: Sequence[Sample]) -> Iterator[str]:
    size = len(samples) // 4
    quarters = [samples[start : start + size] for start in range(0, 4 * size, size)]
    yield from ("### An hour of the same load", "")
    yield (
        f"{WRITERS} clients send {WRITERS * BATCHES_A_SECOND:.0f} batches of {RECORDS} records a second, {READERS} ask "
        f"for {READERS * LOOKUPS_A_SECOND:.0f} rows a second with `latest`, one scans 10,000 rows every "
        f"{1 / SCANS_A_SECOND:.0f} s. Three tables of {KEYS:,} keys, a `keyfold serve` with default settings. "
        "Snapshots are kept for 3 minutes, history for 5. Medians of the quarters of an hour."
    )
    yield ""
    rows = [(one, *(f"{median(sample[one] for sample in quarter):.1f}" for quarter in quarters)) for one in samples[0]]
    yield from table(("", "first", "second", "third", "fourth"), rows)
