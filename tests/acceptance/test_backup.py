"""A backup of a service that takes batches and merges meanwhile, restored and served: no batch twice, none of those
lost that were acknowledged before it began.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Self

from tests.service import Client, TableClient, keyfold, serving, summed

SCHEMA = summed(merge__max_staleness="200 ms")
PAUSE_SECONDS = 0.05


class Producer:
    """Posts one batch after the other, each 1 for key 1, until it is stopped; ``acknowledged`` counts them."""

    def __init__(self, table: TableClient) -> None:
        self.table = table
        self.acknowledged = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._post)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _post(self) -> None:
        while not self._stopped.wait(PAUSE_SECONDS):
            self.table.post_batch([{"id": 1, "n": 1}]).raise_for_status()
            self.acknowledged += 1


def test_a_backup_of_a_busy_service_is_restored_and_served(tmp_path: Path, spark_remote: str) -> None:
    old, new, kept = tmp_path / "old", tmp_path / "new", tmp_path / "backups"
    # The backup has the lease of a merge that ran meanwhile: the restored service waits until it is over.
    with serving(old, spark_remote=spark_remote, lease_seconds="10") as (_, client):
        client.create_database("shop")
        client.create_table("shop", "sums", SCHEMA).raise_for_status()
        table = TableClient(client, "shop", "sums")
        table.post_batch([{"id": 1, "n": 1}], wait=60).raise_for_status()
        with Producer(table) as producer:
            for _ in range(2):
                least = producer.acknowledged
                reported = keyfold("backup", kept, "--data", old)
            most = producer.acknowledged + 1  # one may be stored and not answered yet
        after = [{"id": 1, "n": 1_000_000}]
        table.post_batch(after).raise_for_status()
    assert reported.stdout.startswith("backup "), reported.stderr
    assert "is restored" in keyfold("restore", kept, "--data", new).stdout
    with serving(new, spark_remote=spark_remote) as (_, client):
        table = TableClient(client, "shop", "sums")
        total = table.get_row("1").json()["n"]
        assert 1 + least <= total <= 1 + most
        assert len(_batches(client, table)) == total
        table.merge()
        assert table.get_row("1", consistency="merged").json()["n"] == total
        table.post_batch(after).raise_for_status()
        assert table.get_row("1").json()["n"] == total + 1_000_000


def _batches(client: Client, table: TableClient) -> list[str]:
    found: list[str] = []
    token = ""
    while True:
        params = {"maxResults": "1000"} | ({"pageToken": token} if token else {})
        body = client.get(f"{table.path}/batches", params=params).raise_for_status().json()
        found += [batch["id"] for batch in body["batches"]]
        token = body["nextPageToken"]
        if not token:
            return found
