"""A service that is stopped (SIGSTOP) in the middle of a POST, for longer than files without a name are kept."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from app.catalog.database import CatalogDatabase
from app.files.layout import Warehouse
from app.services.upkeep.sweeps import sweep
from tests.service import Client, Service, TableClient, serving

SCHEMA = {
    "fields": [{"name": "id", "type": "BIGINT NOT NULL"}, {"name": "n", "type": "BIGINT"}],
    "primaryKeys": ["id"],
}


@contextmanager
def frozen(service: Service) -> Iterator[None]:
    service.process.send_signal(signal.SIGSTOP)
    os.waitpid(service.process.pid, os.WUNTRACED)  # it stands still
    try:
        yield
    finally:
        service.process.send_signal(signal.SIGCONT)


def staged(data: Path) -> list[Path]:
    return list(data.glob("warehouse/*/staging/*.parquet"))


def sweep_two_hours_later(data: Path) -> int:
    for path in staged(data):
        os.utime(path, (time.time() - 7200,) * 2)
    database = CatalogDatabase(f"sqlite:///{data}/catalog.sqlite")
    try:
        return sweep(database, Warehouse(str(data / "warehouse")))
    finally:
        database.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("data"), workers="0") as (running, client):
        client.create_database("shop")
        yield running


@pytest.mark.parametrize("key", [None, "once"])
def test_a_batch_whose_file_was_swept_while_the_service_was_frozen_is_stored_or_not_acknowledged(
    service: Service, key: str | None
) -> None:
    """With an Idempotency-Key the service tries again by itself; without one it leaves that to the client."""
    with Client(base_url=service.url, timeout=60, trust_env=False) as client, ThreadPoolExecutor(1) as pool:
        table = TableClient(client, "shop", f"key_{key}")
        client.create_table("shop", f"key_{key}", SCHEMA).raise_for_status()
        headers = {} if key is None else {"Idempotency-Key": key}
        before = len(staged(service.data))
        # Another writer holds the catalog: the POST stops between its file and its batch.
        with closing(sqlite3.connect(service.data / "catalog.sqlite", isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            posting = pool.submit(table.post_batch, [{"id": 1, "n": 1}], **headers)
            while len(staged(service.data)) == before:
                time.sleep(0.01)
            with frozen(service):
                writer.execute("ROLLBACK")
                assert sweep_two_hours_later(service.data) == 1
        answer = posting.result()
        if key is None:
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
            assert "nothing was accepted; retry" in answer.json()["detail"]
            assert client.get(f"{table.path}/batches").json()["batches"] == []
            answer = table.post_batch([{"id": 1, "n": 1}])
        assert answer.status_code == 202
        assert len(client.get(f"{table.path}/batches").json()["batches"]) == 1
        assert table.get_row("1", consistency="latest").json()["n"] == 1
