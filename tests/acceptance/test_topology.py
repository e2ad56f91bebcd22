"""What deploy/compose.yaml starts, as processes of this machine: two services that answer, two workers that merge, one
PostgreSQL, one Spark Connect server, requests as a proxy passes them on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.catalog.database import CatalogDatabase
from app.services.access.tokens import create_token
from tests.acceptance.test_workers import WorkerProcess
from tests.postgres import TEMPLATE, postgres_database
from tests.service import Client, Service, TableClient, summed

CALLER = "192.0.2.7"
SCHEMA = summed(merge__max_staleness="200 ms")


@dataclass
class Topology:
    """Services, workers, and a client of each service, whose requests come as if from a proxy for ``CALLER``."""

    services: list[Service]
    workers: list[WorkerProcess]
    clients: list[Client]
    folder: Path

    def table(self, number: int) -> TableClient:
        return TableClient(self.clients[number], "shop", "sums")


@pytest.fixture
def topology(postgres: str, spark_remote: str, tmp_path: Path) -> Iterator[Topology]:
    with postgres_database(postgres, "topology", TEMPLATE) as url, ExitStack() as exits:
        made = Topology([], [], [], tmp_path)
        catalog = CatalogDatabase(url)
        secret = create_token(catalog, "boss")
        catalog.close()
        shared = {"KEYFOLD_DATABASE_URL": url, "KEYFOLD_WAREHOUSE": str(tmp_path / "warehouse")}
        for number in range(2):
            own = {"KEYFOLD_WORKERS": "0", "KEYFOLD_TRUSTED_PROXIES": "127.0.0.0/8"}
            own |= {"KEYFOLD_AUDIT_LOG": str(tmp_path / f"audit-{number}")}
            service = Service(tmp_path / f"api-{number}", shared | own)
            exits.callback(service.stop)
            made.services.append(service)
            headers = {"Authorization": f"Bearer {secret}", "X-Forwarded-For": CALLER, "X-Forwarded-Proto": "https"}
            client = Client(base_url=service.url, timeout=120, trust_env=False, headers=headers)
            made.clients.append(exits.enter_context(client))
        for number in range(2):
            own = {"KEYFOLD_DATA": str(tmp_path / f"worker-{number}"), "KEYFOLD_SPARK_REMOTE": spark_remote}
            os.mkdir(own["KEYFOLD_DATA"], 0o700)
            worker = WorkerProcess(shared | own | {"KEYFOLD_LEASE_SECONDS": "2"}, tmp_path / f"worker-{number}.log")
            exits.callback(worker.stop)
            made.workers.append(worker)
        yield made


def test_what_one_service_takes_some_worker_merges_and_every_service_answers(topology: Topology) -> None:
    here, there = topology.clients
    here.create_database("shop")
    there.create_table("shop", "sums", SCHEMA).raise_for_status()
    for turn in range(10):
        topology.table(turn % 2).post_batch([{"id": 1, "n": 1}, {"id": turn, "n": 0}]).raise_for_status()
        assert topology.table(1 - turn % 2).get_row("1").json()["n"] == turn + 1, "also before it is merged"
    merged(topology, 0, 11)
    topology.workers[0].kill()
    topology.services[0].stop()
    merged(topology, 1, 12)
    reported = [json.loads(line) for line in (topology.folder / "audit-1").read_text().splitlines()]
    assert [(one["operation"], one["address"], one["token"]) for one in reported] == [("createTable", CALLER, "boss")]


def merged(topology: Topology, number: int, total: int) -> None:
    """One more, waited for: every service that is there then answers without what is staged."""
    table = topology.table(number)
    batch = table.post_batch([{"id": 1, "n": 1}], wait=60).json()
    while batch["state"] != "merged":
        table.merge()
        batch = table.client.get(f"{table.path}/batches/{batch['id']}").json()
    for one, service in zip((0, 1), topology.services, strict=True):
        if service.process.poll() is None:
            assert topology.table(one).get_row("1", consistency="merged", after=batch["id"]).json()["n"] == total
