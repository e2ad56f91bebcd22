"""How long a fresh service takes: to answer, to be ready, to merge first, to merge a smallest batch after that."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from bench.figures import Figure
from bench.served.serving import serving, wait_ok

STARTS = 5
LATER_MERGES = 5
TABLES = "/v1/catalog/databases/bench/tables"
TABLE = {
    "identifier": {"database": "bench", "object": "t"},
    "schema": {
        "fields": [{"name": "k", "type": "BIGINT NOT NULL"}, {"name": "v", "type": "BIGINT"}],
        "primaryKeys": ["k"],
        "options": {"merge-engine": "partial-update"},
    },
}


def measure_startup() -> Figure:
    """Seconds by step, of ``STARTS`` services started one after the other, each in an empty folder."""
    timings: dict[str, list[float]] = {
        "start to /healthz": [],
        "start to /readyz": [],
        "first merge": [],
        "later smallest merge": [],
    }
    for _ in range(STARTS):
        with TemporaryDirectory(prefix="keyfold-bench-") as folder:
            for step, seconds in _one_start(Path(folder)):
                timings[step].append(seconds)
    about = "A fresh `keyfold serve` in an empty folder, and merges of one record, posted to visible."
    return Figure("Start-up", about, timings)


def _one_start(folder: Path) -> Iterator[tuple[str, float]]:
    began = time.monotonic()
    with serving(folder) as client:
        wait_ok(client, "/healthz")
        yield "start to /healthz", time.monotonic() - began
        wait_ok(client, "/readyz")
        yield "start to /readyz", time.monotonic() - began
        client.post("/v1/catalog/databases", json={"name": "bench"}).raise_for_status()
        client.post(TABLES, json=TABLE).raise_for_status()
        yield "first merge", _merge_seconds(client, 0)
        for number in range(1, LATER_MERGES + 1):
            yield "later smallest merge", _merge_seconds(client, number)


def _merge_seconds(client: httpx.Client, key: int) -> float:
    """From posting one record to the answer that it is merged."""
    began = time.monotonic()
    answer = client.post(f"{TABLES}/t/batches", json={"records": [{"k": key, "v": 1}]}, headers={"Prefer": "wait=60"})
    assert answer.status_code == 200, answer.text
    return time.monotonic() - began
