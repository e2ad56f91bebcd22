"""Promises 1 and 2 with real processes: ``kill -9`` at any moment, then a new service in the same folder."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.service import Client, Service, TableClient, serving

PATIENCE = 120
# The first test has a Spark server of its own, which dies with its service; the others have that of the whole run.
SETTINGS = {"lease_seconds": "2", "spark_heap_mib": "1024"}
SUM: dict[str, Any] = {
    "fields": [{"name": "id", "type": "BIGINT"}, {"name": "n", "type": "BIGINT"}],
    "primaryKeys": ["id"],
    "options": {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
}


def spark_processes(data: Path) -> list[str]:
    """The JVM (and its supervisor) that serves ``data``."""
    listed = subprocess.run(["ps", "-axww", "-o", "pid=,command="], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if f"-Dkeyfold.log={data}/" in line]


def until(happened: Callable[[], object], what: str) -> None:
    """Returns once ``happened`` is true."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, f"{what} did not happen in {PATIENCE} s"
        time.sleep(0.05)


@contextmanager
def api(data: Path, spark_remote: str) -> Iterator[tuple[Service, Client]]:
    """A service that takes requests; it may not have reached its Spark yet."""
    settings = {**SETTINGS, "spark_remote": spark_remote}
    service = Service(data, {f"KEYFOLD_{name.upper()}": value for name, value in settings.items()})
    try:
        with Client(base_url=service.url, timeout=60, trust_env=False) as client:
            yield service, client
    finally:
        service.stop()


def sum_table(client: Client) -> TableClient:
    client.create_database("shop")
    client.create_table("shop", "wide", SUM).raise_for_status()
    return TableClient(client, "shop", "wide")


def post_merged(table: TableClient, records: list[dict[str, Any]]) -> None:
    """Posts records and returns once they are merged, however long Spark takes to start."""
    batch = table.post_batch(records, wait=60).raise_for_status().json()["id"]
    until(lambda: table.client.get(f"{table.path}/batches/{batch}").json()["state"] == "merged", "the merge")


def test_rows_survive_kill_9_and_the_jvm_follows_by_itself(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(data, **SETTINGS) as (service, client):
        table = sum_table(client)
        post_merged(table, [{"id": 1, "n": 5}, {"id": 2, "n": 7}])
        post_merged(table, [{"id": 1, "n": 6}])
        before = [table.get_row("1").json(), table.get_row("2").json()]
        assert before == [{"id": 1, "n": 11}, {"id": 2, "n": 7}]
        assert spark_processes(data)
        service.kill()
    until(lambda: not spark_processes(data), "the end of the JVM")
    with serving(data, **SETTINGS) as (_, client):
        table = TableClient(client, "shop", "wide")
        assert [table.get_row("1").json(), table.get_row("2").json()] == before
        post_merged(table, [{"id": 1, "n": 100}])
        assert table.get_row("1").json() == {"id": 1, "n": 111}
    assert not spark_processes(data)


def test_merges_that_ran_side_by_side_when_spark_was_killed_are_done_again_once_each(tmp_path: Path) -> None:
    names, keys, batches = [f"t{number}" for number in range(4)], 2_000, 3
    with serving(tmp_path / "data", **SETTINGS, merges_at_once="3") as (_, client):
        post_merged(sum_table(client), [{"id": 1, "n": 5}])  # Spark answers
        tables = [TableClient(client, "shop", name) for name in names]
        for name, table in zip(names, tables, strict=True):
            client.create_table("shop", name, SUM).raise_for_status()
            for _ in range(batches):
                table.post_batch([{"id": key, "n": key} for key in range(keys)]).raise_for_status()
        for table in tables:
            client.post(f"{table.path}/merges").raise_for_status()
        until(lambda: sum(running(client, table) for table in tables) >= 2, "two merges at a time")
        [jvm] = [line for line in spark_processes(tmp_path / "data") if line.split()[1].endswith("java")]
        os.kill(int(jvm.split()[0]), signal.SIGKILL)
        until(lambda: all(batch_states(client, table) == {"merged"} for table in tables), "the merges")
        for table in tables:
            assert [table.get_row(str(key)).json()["n"] for key in (0, 1, 999)] == [0, batches, 999 * batches]


def test_batches_answered_just_before_kill_9_are_there_exactly_once(tmp_path: Path, spark_remote: str) -> None:
    data, rounds, each = tmp_path / "data", 3, 5
    for number in range(rounds):
        with api(data, spark_remote) as (service, client):
            table = sum_table(client) if number == 0 else TableClient(client, "shop", "wide")
            for one in range(each):
                answer = table.post_batch([{"id": 1, "n": 1}, {"id": 2 + number, "n": 10**one}])
                assert answer.status_code == 202
            service.kill()
        with api(data, spark_remote) as (service, client):
            table = TableClient(client, "shop", "wide")
            assert table.get_row("1", consistency="latest").json()["n"] == each * (number + 1)
            assert table.get_row(str(2 + number), consistency="latest").json()["n"] == 11111
            service.kill()
    with serving(data, **SETTINGS, spark_remote=spark_remote) as (_, client):
        table = TableClient(client, "shop", "wide")
        assert table.merge()["state"] == "succeeded"
        assert [table.get_row(str(key)).json()["n"] for key in range(1, 5)] == [15, 11111, 11111, 11111]


class Poster(threading.Thread):
    """Posts ``n = 1`` for key 1 under Idempotency-Keys of its own until the service is gone."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.name = name
        self.sent = 0  # requests that were begun
        self.accepted = 0  # requests that were answered 202

    def run(self) -> None:
        with Client(base_url=self.url, timeout=60, trust_env=False) as client:
            table = TableClient(client, "shop", "wide")
            while True:
                self.sent += 1
                try:
                    answer = post_once(table, self.name, self.sent)
                except httpx.HTTPError:
                    return
                assert answer.status_code == 202
                self.accepted += 1


def post_once(table: TableClient, poster: str, number: int) -> httpx.Response:
    return table.post_batch([{"id": 1, "n": 1}], **{"Idempotency-Key": f"{poster}-{number}"})


def test_retries_of_requests_that_kill_9_interrupted_count_once(tmp_path: Path, spark_remote: str) -> None:
    data = tmp_path / "data"
    with api(data, spark_remote) as (service, client):
        sum_table(client)
        posters = [Poster(service.url, f"poster-{number}") for number in range(4)]
        for poster in posters:
            poster.start()
        until(lambda: sum(poster.accepted for poster in posters) >= 60, "enough posting")
        service.kill()
        for poster in posters:
            poster.join()
    accepted, sent = sum(poster.accepted for poster in posters), sum(poster.sent for poster in posters)
    with serving(data, **SETTINGS, spark_remote=spark_remote) as (_, client):
        table = TableClient(client, "shop", "wide")
        assert accepted <= table.get_row("1", consistency="latest").json()["n"] <= sent
        for poster in posters:
            for number in range(1, poster.sent + 1):
                assert post_once(table, poster.name, number).status_code == 202
        assert table.merge()["state"] == "succeeded"
        assert table.get_row("1").json()["n"] == sent


def test_a_merge_interrupted_by_kill_9_is_done_once_by_the_next_service(tmp_path: Path, spark_remote: str) -> None:
    data, keys = tmp_path / "data", 60_000
    with serving(data, **SETTINGS, spark_remote=spark_remote) as (service, client):
        table = sum_table(client)
        for _ in range(3):
            records = [{"id": key, "n": 1} for key in range(keys)]
            assert table.post_batch(records).status_code == 202
        client.post(f"{table.path}/merges").raise_for_status()
        until(lambda: running(client, table), "the merge")
        service.kill()
    with serving(data, **SETTINGS, spark_remote=spark_remote) as (_, client):
        table = TableClient(client, "shop", "wide")
        until(lambda: batch_states(client, table) == {"merged"}, "the end of the merge")
        sample = [{"id": key} for key in (0, 1, keys // 2, keys - 1)]
        assert [row and row["n"] for row in table.batch_get(sample)] == [3, 3, 3, 3]


def running(client: Client, table: TableClient) -> bool:
    merges = client.get(f"{table.path}/merges").json()["merges"]
    return any(merge["state"] == "running" for merge in merges)


def batch_states(client: Client, table: TableClient) -> set[str]:
    return {batch["state"] for batch in client.get(f"{table.path}/batches").json()["batches"]}
