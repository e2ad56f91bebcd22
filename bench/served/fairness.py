"""How long a small merge waits while Spark compacts a large table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import httpx
import psutil

from bench.figures import table
from bench.served.growth import NAME, PATIENCE_SECONDS, compacted, merged
from bench.served.processes import keyfold, started
from bench.served.serving import client_of, wait_ok
from bench.site import DATABASE, NO_COMPACTION, bench_site_in
from bench.sizes import Sizes

TABLE_ROWS = 8_000_000
ALONE = 20
TABLES = f"/v1/catalog/databases/{DATABASE}/tables"
SMALL = {
    "fields": [{"name": "id", "type": "BIGINT NOT NULL"}, {"name": "n", "type": "BIGINT"}],
    "primaryKeys": ["id"],
    "options": NO_COMPACTION,
}
HEAD = ("posted to visible, s", "merges", "median", "worst")


def measure_fairness(sizes: Sizes) -> Iterator[Sequence[str]]:
    """A table of the waits of small merges: alone, and while a compaction of many tasks runs."""
    rows = sizes.rows(TABLE_ROWS)
    with TemporaryDirectory(prefix="keyfold-fair-") as name:
        folder = Path(name)
        with bench_site_in(folder / "data") as site:
            site.load(site.create_table(NAME, NO_COMPACTION), rows)
        with started(keyfold(folder / "data"), folder / "serve.log") as server, client_of(server.url) as client:
            wait_ok(client, "/readyz", PATIENCE_SECONDS)
            identifier = {"database": DATABASE, "object": "small"}
            client.post(TABLES, json={"identifier": identifier, "schema": SMALL}).raise_for_status()
            for number in range(5):
                _merge(client, number)
            alone = [_merge(client, number) for number in range(ALONE)]
            merged(client, rows, 1, sizes.records)
            with ThreadPoolExecutor(1) as other, client_of(server.url) as poster:
                compaction = other.submit(compacted, client)
                during = list(_until(compaction.done, poster))
            task = compaction.result()
    tasks, seconds = task["progressDetail"].get("tasks", 1), (task["finishedAt"] - task["startedAt"]) / 1000
    about = (
        f"A compaction of {rows:,} rows × 20 columns took {seconds:.1f} s in {tasks} tasks, "
        f"{seconds * (psutil.cpu_count() or 1) / tasks:.1f} s each. Meanwhile a client posts one record after another "
        "to a small table, with `Prefer: wait`."
    )
    rows_shown = [_row("alone", alone), _row("while the compaction runs", during)]
    yield ["### A small merge behind a large compaction", "", about, "", *table(HEAD, rows_shown)]


def _merge(client: httpx.Client, number: int) -> float:
    """Return the seconds from a POST of one record to its commit."""
    began = time.perf_counter()
    body = {"records": [{"id": number, "n": number}]}
    answer = client.post(f"{TABLES}/small/batches", json=body, headers={"Prefer": "wait=60"})
    assert answer.status_code == 200, answer.text
    return time.perf_counter() - began


def _until(ended: Callable[[], bool], client: httpx.Client) -> Iterator[float]:
    number = 0
    while not ended():
        yield _merge(client, number)
        number += 1


def _row(name: str, waits: Sequence[float]) -> Sequence[str]:
    return name, str(len(waits)), f"{median(waits):.2f}", f"{max(waits):.2f}"
