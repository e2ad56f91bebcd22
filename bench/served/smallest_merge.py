"""How long ten records take from a POST to being visible, and where the time goes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from bench.figures import Figure, Ratio
from bench.served.processes import cpu_by_kind, keyfold, started
from bench.served.serving import client_of, wait_ok
from bench.site import NO_COMPACTION
from bench.wide_table import batch_records, schema_json

RECORDS = 10
WARM_UPS = 5
MERGES = 25
CPU, GOAL, CPU_GOAL = "CPU, mean: all", "goal: posted to visible", "goal: CPU"
TABLES = "/v1/catalog/databases/bench/tables"
STEPS = (
    "posted to visible",
    "accept: decode, staging file, catalog",
    "wait for the worker, claim",
    "the job: fold and its files",
    "footers, commit",
    "answer",
)


def measure_smallest_merge() -> Figure:
    """Seconds by part, from the times that the batch and its merge carry and that of the run's folder."""
    timings: dict[str, list[float]] = {step: [] for step in STEPS}
    with (
        TemporaryDirectory(prefix="keyfold-bench-") as folder,
        started(keyfold(Path(folder) / "data"), Path(folder) / "log") as server,
        client_of(server.url) as client,
    ):
        wait_ok(client, "/readyz")
        client.post("/v1/catalog/databases", json={"name": "bench"}).raise_for_status()
        table = {"identifier": {"database": "bench", "object": "t"}, "schema": schema_json(NO_COMPACTION)}
        client.post(TABLES, json=table).raise_for_status()
        _warm_up(client)
        before = cpu_by_kind(server)
        for number in range(WARM_UPS + 1, WARM_UPS + MERGES + 1):
            parts = dict(zip(STEPS, _parts(client, Path(folder), number), strict=True))
            for step, seconds in parts.items():
                timings[step].append(seconds)
        taken = cpu_by_kind(server).since(before)
        for name, seconds in asdict(taken).items():
            timings[f"CPU, mean: {name}"] = [seconds / MERGES]
        timings[CPU] = [sum(asdict(taken).values()) / MERGES]
    about = (
        f"{RECORDS} records of the wide table posted to a running `keyfold serve` with `Prefer: wait`, which asks for "
        "the merge at once; without it `merge.max-staleness` (1 s by default) comes on top. The fold ends when "
        "the run's folder has its last change. Compaction is off. Times in the API are whole milliseconds."
    )
    ratios = [Ratio(STEPS[0], GOAL, 1.0), Ratio(CPU, CPU_GOAL, 1.0)]
    return Figure("Smallest merge", about, {**timings, GOAL: [0.35], CPU_GOAL: [0.15]}, ratios)


def _warm_up(client: httpx.Client) -> None:
    """The first merges, however long they take."""
    for number in range(1, WARM_UPS + 1):
        batch = _post(client, number).json()["id"]
        while client.get(f"{TABLES}/t/batches/{batch}").raise_for_status().json()["state"] != "merged":
            time.sleep(0.1)


def _post(client: httpx.Client, number: int) -> httpx.Response:
    records = [_json(record) for record in batch_records(number, 1000, RECORDS).to_pylist()]
    return client.post(f"{TABLES}/t/batches", json={"records": records}, headers={"Prefer": "wait=60"})


def _parts(client: httpx.Client, folder: Path, number: int) -> Iterator[float]:
    posted = time.time()
    answer = _post(client, number)
    answered = time.time()
    assert answer.status_code == 200, answer.text
    batch = answer.json()
    merge = client.get(f"{TABLES}/t/merges/{batch['mergeId']}").raise_for_status().json()
    accepted, started, finished = batch["acceptedAt"] / 1e3, merge["startedAt"] / 1e3, merge["finishedAt"] / 1e3
    written = max(run.stat().st_mtime for run in folder.glob("data/warehouse/*/runs/*"))
    moments = (posted, accepted, started, written, finished, answered)
    yield answered - posted
    yield from (later - earlier for earlier, later in pairwise(moments))


def _json(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in record.items()}
