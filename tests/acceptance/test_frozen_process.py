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
from tests.service import Client, Service, TableClient

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


@pytest.mark.parametrize("key", [None, "once"])
def test_a_batch_whose_file_was_swept_while_the_service_was_frozen_is_stored_or_not_acknowledged(
    tmp_path: Path, key: str | None
) -> None:
    """With an Idempotency-Key the service tries again by itself; without one it leaves that to the client."""
    service = Service(tmp_path, {"KEYFOLD_WORKERS": "0"})
    try:
        with Client(base_url=service.url, timeout=60, trust_env=False) as client, ThreadPoolExecutor(1) as pool:
            client.create_database("shop")
            client.create_table("shop", "wide", SCHEMA).raise_for_status()
            table = TableClient(client, "shop", "wide")
            headers = {} if key is None else {"Idempotency-Key": key}
            # Another writer holds the catalog: the POST stops between its file and its batch.
            with closing(sqlite3.connect(tmp_path / "catalog.sqlite", isolation_level=None)) as writer:
                writer.execute("BEGIN IMMEDIATE")
                posting = pool.submit(table.post_batch, [{"id": 1, "n": 1}], **headers)
                while not staged(tmp_path):
                    time.sleep(0.01)
                with frozen(service):
                    writer.execute("ROLLBACK")
                    assert sweep_two_hours_later(tmp_path) == 1
            answer = posting.result()
            if key is None:
                assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
                assert "post it again" in answer.json()["detail"]
                assert client.get(f"{table.path}/batches").json()["batches"] == []
                answer = table.post_batch([{"id": 1, "n": 1}])
            assert answer.status_code == 202
            assert len(client.get(f"{table.path}/batches").json()["batches"]) == 1
            assert table.get_row("1", consistency="latest").json()["n"] == 1
    finally:
        service.stop()
