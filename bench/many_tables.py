"""How long one record into each of many tables takes until all are merged by themselves."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from bench.figures import Figure, seconds
from bench.serving import serving, wait_ok

TABLES = 40
WARM_UPS = 1
ROUNDS = 5
DATABASE = "/v1/catalog/databases/many/tables"
SCHEMA = {
    "fields": [{"name": "id", "type": "BIGINT NOT NULL"}, {"name": "n", "type": "BIGINT"}],
    "primaryKeys": ["id"],
    "options": {"num-sorted-run.compaction-trigger": "1000000"},
}


def measure_many_tables() -> Figure:
    """Seconds from the first POST until the last of the tables is merged."""
    with TemporaryDirectory(prefix="keyfold-bench-") as folder, serving(Path(folder)) as client:
        wait_ok(client, "/readyz")
        client.post("/v1/catalog/databases", json={"name": "many"}).raise_for_status()
        for number in range(TABLES):
            table = {"identifier": {"database": "many", "object": f"t{number}"}, "schema": SCHEMA}
            client.post(DATABASE, json=table).raise_for_status()
        taken = [seconds(lambda: _merged_everywhere(client)) for _ in range(WARM_UPS + ROUNDS)][WARM_UPS:]
    about = (
        f"One record posted into each of {TABLES} tables of an idle `keyfold serve` with default settings: until the "
        "last one is merged. `merge.max-staleness` (1 s by default) is in it."
    )
    return Figure("Many tables", about, {f"{TABLES} tables of one record": taken})


def _merged_everywhere(client: httpx.Client) -> None:
    waiting = [(number, _post(client, number)) for number in range(TABLES)]
    while waiting:
        time.sleep(0.1)
        waiting = [(number, batch) for number, batch in waiting if _state(client, number, batch) != "merged"]


def _post(client: httpx.Client, number: int) -> str:
    answer = client.post(f"{DATABASE}/t{number}/batches", json={"records": [{"id": 1, "n": 1}]})
    return str(answer.raise_for_status().json()["id"])


def _state(client: httpx.Client, number: int, batch: str) -> str:
    return str(client.get(f"{DATABASE}/t{number}/batches/{batch}").raise_for_status().json()["state"])
