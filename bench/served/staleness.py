"""How long records wait for their merges while many tables get some every second, with loads of other kinds."""

from __future__ import annotations

import io
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import httpx
import pyarrow as pa

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.table.history import Table, TaskState
from bench.figures import table
from bench.served.many_tables import SCHEMA
from bench.served.processes import CpuByKind, Server, cpu_by_kind, keyfold, started
from bench.served.serving import PATIENCE_SECONDS, client_of, wait_for_merges, wait_ok
from bench.sizes import Sizes
from bench.wide_table import batch_records, schema_json

SECONDS, LEAST_SECONDS = 60.0, 10.0
MOST_CORES = 0.8  # of the service and Spark, for 100 tables
ARROW = "application/vnd.apache.arrow.stream"
TABLES = "/v1/catalog/databases/many/tables"
POSTERS = 8
LARGE_RECORDS = 100_000
WITHOUT_COMPACTION = SCHEMA
PLAIN = {"fields": SCHEMA["fields"], "primaryKeys": SCHEMA["primaryKeys"], "options": {}}
HEAD = ("load", "tables", "batches", "unmerged", "median", "99 %", "worst", "worst table's median")


@dataclass(frozen=True)
class Load:
    """So many tables of one ``schema`` that get a batch each ``every`` seconds, made by ``body`` of its number."""

    name: str
    tables: int
    every: float
    body: Callable[[int], tuple[str, bytes]]
    schema: Mapping[str, object] = field(default_factory=lambda: PLAIN)
    fails: bool = False  # every merge of it does

    def names(self) -> list[str]:
        """Of its tables."""
        return [f"{self.name.replace(' ', '_')}_{number}" for number in range(self.tables)]


def few(records: int) -> Callable[[int], tuple[str, bytes]]:
    """Bodies of so many records."""
    return lambda turn: (
        "application/json",
        json.dumps({"records": [{"id": number, "n": turn} for number in range(records)]}).encode(),
    )


def large(turn: int) -> tuple[str, bytes]:
    """Return a body whose merge shares no job."""
    sink, rows = io.BytesIO(), batch_records(turn + 1, 10 * LARGE_RECORDS, LARGE_RECORDS)
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return ARROW, sink.getvalue()


AGES = (1, 2, 5, 10)  # seconds of merge.max-staleness
EVEN_QUIET = [Load("a record a second without compactions", 100, 1.0, few(1), WITHOUT_COMPACTION)]
MIXED = [
    Load("a record each 5 s", 290, 5.0, few(1)),
    Load("hot", 8, 0.25, few(20)),
    Load("large", 1, 10.0, large, schema_json()),
    Load("failing", 1, 1.0, few(1), fails=True),
]


def measure_staleness(sizes: Sizes) -> Iterator[Sequence[str]]:
    """A table of what was measured, for each mix of loads."""
    seconds = max(LEAST_SECONDS, SECONDS * sizes.scale)
    for title, loads in (
        *(
            (f"{tables} tables, merged after {age} s", _merged_after(age, tables))
            for tables in (1, 100)
            for age in AGES
        ),
        ("100 tables, no compactions", EVEN_QUIET),
        ("300 mixed", MIXED),
    ):
        yield list(_measured(title, loads, seconds))


def _merged_after(age: int, tables: int) -> list[Load]:
    schema = {**PLAIN, "options": {"merge.max-staleness": f"{age} s"}}
    return [Load("a record a second", tables, 1.0, few(1), schema)]


def _measured(title: str, loads: Sequence[Load], seconds: float) -> Iterator[str]:
    with (
        TemporaryDirectory(prefix="keyfold-bench-") as folder,
        started(keyfold(Path(folder) / "data"), Path(folder) / "log") as server,
        client_of(server.url) as client,
    ):
        wait_ok(client, "/readyz")
        _create(client, Path(folder) / "data", loads)
        wait_for_merges(client, "many")
        posted, taken = _posted(server, loads, seconds)
        overdue = _overdue(client)
        yield from (f"### Staleness: {title}", "", _about(seconds, posted, taken), "")
        with _catalog(Path(folder) / "data") as repository:
            yield from table(HEAD, [_row(repository, load) for load in loads])
        yield from ("", "What the service says of them at the end:", "", "```", *overdue, "```")


def _create(client: httpx.Client, data: Path, loads: Sequence[Load]) -> None:
    client.post("/v1/catalog/databases", json={"name": "many"}).raise_for_status()
    for load in loads:
        for name in load.names():
            body = {"identifier": {"database": "many", "object": name}, "schema": load.schema}
            made = client.post(TABLES, json=body).raise_for_status().json()
            if load.fails:  # a file is in the place of its folder of runs
                folder = data / "warehouse" / made["id"]
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "runs").write_text("")


def _posted(server: Server, loads: Sequence[Load], seconds: float) -> tuple[int, CpuByKind]:
    """Post as the loads say; return how many batches were accepted, and the CPU seconds."""
    tasks = [(load, name, random.random() * load.every) for load in loads for name in load.names()]
    accepted = [0] * POSTERS
    before, began = cpu_by_kind(server), time.monotonic()

    def post(poster: int) -> None:
        mine = [(start, 0, load, name) for load, name, start in tasks[poster::POSTERS]]
        connection = HTTPConnection(urlsplit(server.url).netloc, timeout=PATIENCE_SECONDS)
        while mine:
            mine.sort(key=lambda one: one[0], reverse=True)
            due, turn, load, name = mine.pop()
            if due > seconds:
                continue
            time.sleep(max(0.0, began + due - time.monotonic()))
            kind, body = load.body(turn)
            connection.request("POST", f"{TABLES}/{name}/batches", body, {"Content-Type": kind})
            answer = connection.getresponse()
            answer.read()
            accepted[poster] += answer.status == 202
            mine.append((due + load.every, turn + 1, load, name))

    threads = [threading.Thread(target=post, args=(poster,)) for poster in range(POSTERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(accepted), cpu_by_kind(server).since(before)


def _about(seconds: float, posted: int, cpu: CpuByKind) -> str:
    cores = (cpu.spark + cpu.service) / seconds
    return (
        f"{posted} batches accepted in {seconds:.0f} s; CPU of Spark's JVM {cpu.jvm:.1f} s, of its Python "
        f"workers {cpu.workers:.1f} s, of the service {cpu.service:.1f} s: {cores:.2f} cores, "
        f"{cores / MOST_CORES:.2f} of the goal for 100 tables ({MOST_CORES}). "
        "Seconds from the acceptance of a batch to the commit of its merge, by the catalog; what was unmerged at the "
        "end counts as long as it had waited. Nothing is merged sooner than `merge.max-staleness`."
    )


def _overdue(client: httpx.Client) -> list[str]:
    lines = client.get("/metrics").raise_for_status().text.splitlines()
    return [line for line in lines if line.startswith("keyfold_overdue_tables")]


@contextmanager
def _catalog(data: Path) -> Iterator[Repository]:
    database = CatalogDatabase(f"sqlite:///{data / 'catalog.sqlite'}")
    with database.reading() as repository:
        yield repository
    database.close()


def _row(repository: Repository, load: Load) -> Sequence[str]:
    waits_of = [_waits(repository, repository.tables.get("many", name)) for name in load.names()]
    waits = sorted(wait for merged, unmerged in waits_of for wait in (*merged, *unmerged))
    medians = [sorted((*merged, *unmerged))[len((*merged, *unmerged)) // 2] for merged, unmerged in waits_of]
    shares = [waits[len(waits) // 2], waits[int(len(waits) * 0.99)], waits[-1], max(medians)]
    unmerged = sum(len(left) for _, left in waits_of)
    return load.name, str(load.tables), str(len(waits)), str(unmerged), *(f"{share:.2f}" for share in shares)


def _waits(repository: Repository, of: Table) -> tuple[list[float], list[float]]:
    """Seconds that each batch of a table waited until it was merged, and those that wait still."""
    ended = {task.id: task.finished_at for task in repository.tasks.page(of.id, limit=10**6, state=TaskState.SUCCEEDED)}
    merged: list[float] = []
    unmerged: list[float] = []
    for batch in repository.batches.page(of.id, limit=10**6):
        end = ended.get(batch.merge_id or "")
        waited = ((end or repository.now()) - batch.accepted_at).total_seconds()
        (unmerged if end is None else merged).append(waited)
    return merged, unmerged
