"""How long one record into each of many tables takes until all are merged by themselves, and what CPU that takes."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from bench.figures import Figure, seconds
from bench.processes import Server, cpu_seconds, keyfold, started
from bench.serving import client_of, wait_ok

TABLES = 100
WARM_UPS = 1
ROUNDS = 5
DATABASE = "/v1/catalog/databases/many/tables"
SCHEMA = {
    "fields": [{"name": "id", "type": "BIGINT NOT NULL"}, {"name": "n", "type": "BIGINT"}],
    "primaryKeys": ["id"],
    "options": {"num-sorted-run.compaction-trigger": "1000000"},
}
# How many records a worker folds by itself: the default, and none, so that each merge is a job of Spark.
WAYS = {"as it is": {}, "all on Spark": {"KEYFOLD_SMALL_MERGE_RECORDS": "0"}}


def measure_many_tables() -> Figure:
    """Seconds from the first POST until the last of the tables is merged, and of CPU meanwhile."""
    timings: dict[str, list[float]] = {}
    for way, environment in WAYS.items():
        with (
            TemporaryDirectory(prefix="keyfold-bench-") as folder,
            started(keyfold(Path(folder) / "data"), Path(folder) / "log", environment) as server,
            client_of(server.url) as client,
        ):
            _create_tables(client)
            for turn in range(-WARM_UPS, ROUNDS):
                jvm, others = spark_and_others(server)
                taken = seconds(lambda: _merged_everywhere(client))
                jvm_then, others_then = spark_and_others(server)
                if turn >= 0:
                    timings.setdefault(f"{way}: until all are merged", []).append(taken)
                    timings.setdefault(f"{way}: CPU of Spark", []).append(jvm_then - jvm)
                    timings.setdefault(f"{way}: CPU of the service", []).append(others_then - others)
    about = (
        f"One record posted into each of {TABLES} tables of an idle `keyfold serve` with default settings: until the "
        "last one is merged. `merge.max-staleness` (1 s by default) is in it. The second service leaves all merges to "
        "Spark (`KEYFOLD_SMALL_MERGE_RECORDS=0`)."
    )
    return Figure("Many tables", about, timings)


def spark_and_others(server: Server) -> tuple[float, float]:
    """The CPU seconds that the JVM, and that all other processes of a service have taken so far."""
    spark = sum(cpu_seconds(process) for process in server.family if "java" in process.name())
    return spark, server.cpu_seconds() - spark


def _create_tables(client: httpx.Client) -> None:
    wait_ok(client, "/readyz")
    client.post("/v1/catalog/databases", json={"name": "many"}).raise_for_status()
    for number in range(TABLES):
        table = {"identifier": {"database": "many", "object": f"t{number}"}, "schema": SCHEMA}
        client.post(DATABASE, json=table).raise_for_status()


def _merged_everywhere(client: httpx.Client) -> None:
    """Asks for the first batch that was not merged, again and again: to ask for all would be most of the work."""
    waiting = [(number, _post(client, number)) for number in range(TABLES)]
    while waiting:
        time.sleep(0.05)
        while waiting and _state(client, *waiting[-1]) == "merged":
            waiting.pop()


def _post(client: httpx.Client, number: int) -> str:
    answer = client.post(f"{DATABASE}/t{number}/batches", json={"records": [{"id": 1, "n": 1}]})
    return str(answer.raise_for_status().json()["id"])


def _state(client: httpx.Client, number: int, batch: str) -> str:
    return str(client.get(f"{DATABASE}/t{number}/batches/{batch}").raise_for_status().json()["state"])
