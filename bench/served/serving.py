"""A real ``keyfold serve`` process and a client of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench.served.processes import keyfold, started

PATIENCE_SECONDS = 120


@contextmanager
def serving(folder: Path) -> Iterator[httpx.Client]:
    """A service that works in ``folder/data``, from the moment it listens: a client of it."""
    with started(keyfold(folder / "data"), folder / "log") as server, client_of(server.url) as client:
        yield client


def client_of(url: str) -> httpx.Client:
    """A client that waits long and knows no proxy."""
    return httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_SECONDS)


def wait_ok(client: httpx.Client, path: str, patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Returns when ``path`` answers 200. Raises ``TimeoutError``."""
    deadline = time.monotonic() + patience_seconds
    while time.monotonic() < deadline:
        try:
            if client.get(path).status_code == 200:
                return
        except httpx.ConnectError:
            pass
        time.sleep(0.01)
    raise TimeoutError(f"{path} did not answer 200 in {patience_seconds} s")


def wait_for_merges(client: httpx.Client, database: str) -> None:
    """Return once the service has merged a record of a new table: it answers long before Spark does."""
    tables = f"/v1/catalog/databases/{database}/tables"
    schema = {"fields": [{"name": "id", "type": "BIGINT NOT NULL"}], "primaryKeys": ["id"], "options": {}}
    body = {"identifier": {"database": database, "object": "warm_up"}, "schema": schema}
    client.post(tables, json=body).raise_for_status()
    answer = client.post(f"{tables}/warm_up/batches", json={"records": [{"id": 1}]}, headers={"Prefer": "wait=60"})
    batch = answer.raise_for_status().json()["id"]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while client.get(f"{tables}/warm_up/batches/{batch}").raise_for_status().json()["state"] != "merged":
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing was merged in {PATIENCE_SECONDS} s")
        time.sleep(0.1)
