"""Somebody holds the catalog's lock: a few writers wait, the next are told so at once, and readers notice nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import sqlalchemy as sa

from app.catalog.connections.writers import MOST_WAITING
from tests.acceptance.processes import SCHEMA
from tests.catalog.conftest import catalog_kind, catalog_url, empty_catalog_url
from tests.service import Client, Service, TableClient
from tests.telemetry.test_metrics import named, series

__all__ = ["catalog_kind", "catalog_url", "empty_catalog_url"]

PATIENCE_SECONDS = 25  # less than a lock is waited for
POSTS = 100
HOLDER = """
import sys
import sqlalchemy as sa
engine = sa.create_engine(sys.argv[1])
with engine.connect() as connection:
    if engine.dialect.name == "sqlite":
        connection.connection.driver_connection.isolation_level = None
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.exec_driver_sql("SELECT id FROM tables FOR UPDATE")
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(url: str) -> Iterator[subprocess.Popen[str]]:
    """Another process holds what writers need, until it is told to let go."""
    command = [sys.executable, "-c", HOLDER, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.communicate()


def post(url: str, table: str, number: int) -> httpx.Response:
    """On a connection of its own."""
    with Client(base_url=url, timeout=120, trust_env=False) as client:
        return TableClient(client, "shop", table).post_batch([{"id": number, "n": 1}])


def wait_for_locks(url: str, waiting: int) -> None:
    """Return once that many connections of a PostgreSQL catalog wait for a lock."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    deadline = time.monotonic() + PATIENCE_SECONDS
    engine = sa.create_engine(url)
    while True:
        with engine.connect() as connection:
            found = connection.exec_driver_sql(query).scalar_one()
        if found >= waiting:
            break
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    engine.dispose()


def wait_until(posting: list[Future[httpx.Response]], ended: int, holder: subprocess.Popen[str]) -> None:
    """Returns once that many have ended, while the lock is held."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while sum(one.done() for one in posting) < ended:
        assert time.monotonic() < deadline, sum(one.done() for one in posting)
        time.sleep(0.02)
    assert holder.poll() is None


def test_readers_do_not_wait_for_writers_and_writers_do_not_wait_for_ever(tmp_path: Path, catalog_url: str) -> None:
    service = Service(tmp_path / "data", {"KEYFOLD_WORKERS": "0", "KEYFOLD_DATABASE_URL": catalog_url})
    try:
        with Client(base_url=service.url, timeout=PATIENCE_SECONDS, trust_env=False) as client:
            client.create_database("shop")
            for tables in (1, 5):
                check_service(service, client, catalog_url, [f"t{number}_of_{tables}" for number in range(tables)])
    finally:
        service.stop()


def check_service(service: Service, client: Client, catalog_url: str, names: list[str]) -> None:
    before = staged(service)
    for name in names:
        client.create_table("shop", name, SCHEMA).raise_for_status()
        assert post(service.url, name, 0).status_code == 202
    table = TableClient(client, "shop", names[0])
    # The first writer of a table waits for PostgreSQL, inside of a transaction. It comes before the others.
    leaders = 0 if catalog_url.startswith("sqlite") else len(names)
    with ThreadPoolExecutor(POSTS) as pool, held(catalog_url) as holder:
        posts = [partial(post, service.url, names[number % len(names)], number + 1) for number in range(POSTS)]
        posting = [pool.submit(one) for one in posts[:leaders]]
        if leaders:
            wait_for_locks(catalog_url, leaders)
        posting += [pool.submit(one) for one in posts[leaders:]]
        for number in range(50):
            assert table.get_row("0").json() == {"id": 0, "n": 1}, number
            assert client.get("/healthz").status_code == 200
            assert client.get(f"{table.path}/batches").status_code == 200
        metrics = series(client.get("/metrics").text)
        assert named(metrics, "keyfold_catalog_up") == 1
        assert client.get("/readyz").status_code == 200
        wait_until(posting, POSTS - MOST_WAITING - leaders, holder)
        assert table.get_row("0").status_code == 200
        assert named(series(client.get("/metrics").text), "keyfold_waiting_writers") == MOST_WAITING
        refused = [one.result() for one in posting if one.done()]
        late = post(service.url, names[0], POSTS + 1)  # who comes now is told at once
        assert holder.poll() is None
    for answer in (*refused, late):
        assert answer.status_code == 503, answer.text
        assert int(answer.headers["retry-after"]) > 0
        assert "writers wait for the catalog, which does not answer; nothing was stored" in answer.json()["detail"]
    accepted = [one.result() for one in posting if one.result().status_code == 202]
    assert len(accepted) == POSTS - len(refused) == MOST_WAITING + leaders
    check_nothing_is_half(client, names, len(accepted))
    assert staged(service) - before == len(accepted) + len(names)


def staged(service: Service) -> int:
    return len(list(service.data.glob("warehouse/*/staging/*")))


def check_nothing_is_half(client: Client, names: list[str], accepted: int) -> None:
    paths = [f"/v1/catalog/databases/shop/tables/{name}/batches?order=oldest" for name in names]
    listed = [[batch["number"] for batch in client.get(path).json()["batches"]] for path in paths]
    assert sum(map(len, listed)) == accepted + len(names)
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in listed)
