"""How long one record into each of many tables takes until all are merged by themselves, and what CPU that takes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import httpx

from bench.figures import seconds, table
from bench.served.processes import cpu_by_kind, keyfold, started
from bench.served.serving import client_of, wait_ok
from bench.sizes import Sizes

TABLES = (100, 1000)
GOALS = {100: 5, 1000: 15}  # seconds
WARM_UPS = 1
DATABASE = "/v1/catalog/databases/many/tables"
SCHEMA = {
    "fields": [{"name": "id", "type": "BIGINT NOT NULL"}, {"name": "n", "type": "BIGINT"}],
    "primaryKeys": ["id"],
    "options": {"num-sorted-run.compaction-trigger": "1000000"},
}


def measure_many_tables(sizes: Sizes) -> Iterator[Sequence[str]]:
    """Return the seconds from the first POST until the last table is merged, and of CPU meanwhile, for each count."""
    head = ("tables", "all merged after s", "CPU s: JVM", "Python workers", "service", "goal s", "ratio")
    cells = []
    for count in TABLES:
        tables = sizes.rows(count)
        taken = _measured(tables, sizes.rounds)
        wall, *cpu = (median(one) for one in zip(*taken, strict=True))
        goal = GOALS[count]
        cells.append((f"{tables:,}", f"{wall:.2f}", *(f"{one:.2f}" for one in cpu), f"{goal}", f"{wall / goal:.2f}"))
    about = (
        "One record posted into each table of an idle `keyfold serve` with default settings, until the last one is "
        "merged; medians. `merge.max-staleness` is in the time."
    )
    yield ["### Many tables", "", about, "", *table(head, cells)]


def _measured(tables: int, rounds: int) -> list[tuple[float, float, float, float]]:
    with (
        TemporaryDirectory(prefix="keyfold-bench-") as folder,
        started(keyfold(Path(folder) / "data"), Path(folder) / "log") as server,
        client_of(server.url) as client,
    ):
        _create_tables(client, tables)
        times = []
        for _ in range(WARM_UPS + rounds):
            before = cpu_by_kind(server)
            wall = seconds(lambda: _merged_everywhere(client, tables))
            cpu = cpu_by_kind(server).since(before)
            times.append((wall, cpu.jvm, cpu.workers, cpu.service))
        return times[WARM_UPS:]


def _create_tables(client: httpx.Client, tables: int) -> None:
    wait_ok(client, "/readyz")
    client.post("/v1/catalog/databases", json={"name": "many"}).raise_for_status()
    for number in range(tables):
        body = {"identifier": {"database": "many", "object": f"t{number}"}, "schema": SCHEMA}
        client.post(DATABASE, json=body).raise_for_status()


def _merged_everywhere(client: httpx.Client, tables: int) -> None:
    """Wait until all are merged. Only the first batch that is not is looked at: all would be most of the work."""
    waiting = [(number, _post(client, number)) for number in range(tables)]
    while waiting:
        time.sleep(0.05)
        while waiting and _state(client, *waiting[-1]) == "merged":
            waiting.pop()


def _post(client: httpx.Client, number: int) -> str:
    answer = client.post(f"{DATABASE}/t{number}/batches", json={"records": [{"id": 1, "n": 1}]})
    return str(answer.raise_for_status().json()["id"])


def _state(client: httpx.Client, number: int, batch: str) -> str:
    return str(client.get(f"{DATABASE}/t{number}/batches/{batch}").raise_for_status().json()["state"])
