"""Several ``keyfold worker`` processes on one PostgreSQL: tables are merged at the same time, and one takes over from
another.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa

from app.catalog.database import CatalogDatabase
from app.catalog.shared.models import merges
from app.core.plan.records.bounds import Bounds
from app.core.table.history import Table, TaskState
from app.files.layout import Warehouse
from app.services.batches.batches import Upload, accept_batch
from app.services.bodies.formats import JSON
from app.services.merging.merges import request_merge
from app.services.rows.lookups import Images
from tests.postgres import TEMPLATE, postgres_database
from tests.services.builders import QUIET, SUM, create_table, totals
from tests.telemetry.test_metrics import named, series

PATIENCE_SECONDS = 120
KEYS = 100_000


class WorkerProcess:
    """One ``keyfold worker``; the owners of the leases it takes begin with ``name``."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        with open(log, "w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "app.cli", "worker"],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "KEYFOLD_WORKER_METRICS_PORT": "0", **environment},
            )
        assert self.process.stdout is not None
        found = re.search(r"merges as (\S+)", self.process.stdout.readline())
        assert found is not None, log.read_text()
        self.name = found[1]
        address = re.search(r"http://127\.0\.0\.1:\d+/metrics", self.process.stdout.readline())
        assert address is not None, log.read_text()
        self.metrics_at = address[0]

    def merged(self) -> float:
        """How many merges it says to have done."""
        reported = series(httpx.get(self.metrics_at, trust_env=False).raise_for_status().text)
        return named(reported, "keyfold_task_seconds_count", kind="merge", outcome="succeeded")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Shop:
    """A catalog on PostgreSQL, a warehouse, and two workers."""

    def __init__(self, url: str, folder: Path, spark_remote: str, exits: ExitStack) -> None:
        self.warehouse = Warehouse(str(folder / "warehouse"))
        self.database = CatalogDatabase(url)
        exits.callback(self.database.close)
        self.engine = sa.create_engine(url)
        exits.callback(self.engine.dispose)
        self.images = Images(folder / "images", self.warehouse)
        exits.callback(self.images.close)
        environment = {
            "KEYFOLD_DATA": str(folder),
            "KEYFOLD_DATABASE_URL": url,
            "KEYFOLD_WAREHOUSE": str(folder / "warehouse"),
            "KEYFOLD_SPARK_REMOTE": spark_remote,
            "KEYFOLD_LEASE_SECONDS": "2",
            "KEYFOLD_MERGES_AT_ONCE": "1",  # so that both work
        }
        self.workers: list[WorkerProcess] = []
        for number in range(2):
            self.workers.append(WorkerProcess(environment, folder / f"worker-{number}.log"))
            exits.callback(self.workers[number].stop)

    def table(self, name: str) -> Table:
        return create_table(self.database, SUM | QUIET, name)

    def stage(self, table: Table) -> None:
        """A batch that adds one to every key."""
        records = [{"id": key, "n": 1} for key in range(KEYS)]
        upload = Upload(json.dumps({"records": records}).encode(), JSON)
        accept_batch(self.database, self.warehouse, "shop", table.name, upload, Bounds(KEYS))

    def merges(self) -> list[tuple[str, TaskState, str]]:
        """(id, state, worker) of every merge."""
        with self.engine.connect() as connection:
            found = connection.execute(sa.select(merges.c.id, merges.c.state, merges.c.lease_owner)).all()
        return [(row.id, TaskState(row.state), str(row.lease_owner).rpartition("-")[0]) for row in found]

    def running(self) -> list[str]:
        """The workers of the merges that run now."""
        return [owner for _, state, owner in self.merges() if state is TaskState.RUNNING]

    def sums(self, table: Table) -> list[int]:
        return totals(self.database, self.images, table, (0, 1, KEYS // 2, KEYS - 1))


@pytest.fixture(scope="module")
def shop(postgres: str, spark_remote: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with postgres_database(postgres, "shop", TEMPLATE) as url, ExitStack() as exits:
        yield Shop(url, tmp_path_factory.mktemp("shop"), spark_remote, exits)


def until(happened: Callable[[], object], what: str) -> None:
    """Returns once ``happened`` is true."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline, f"{what} did not happen in {PATIENCE_SECONDS} s"
        time.sleep(0.01)


def over(shop: Shop) -> bool:
    return all(state is TaskState.SUCCEEDED for _, state, _ in shop.merges())


def test_two_workers_merge_two_tables_at_the_same_time(shop: Shop) -> None:
    tables = [shop.table("a"), shop.table("b")]
    rounds, together = 0, False
    while not together:  # one of the workers may still be starting
        rounds += 1
        assert rounds < 20
        for table in tables:
            shop.stage(table)
        for table in tables:
            request_merge(shop.database, table.id)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not over(shop):
            assert time.monotonic() < deadline
            together = together or set(shop.running()) == {worker.name for worker in shop.workers}
            time.sleep(0.01)
    assert [shop.sums(table) for table in tables] == [[rounds] * 4] * 2
    until(lambda: sum(worker.merged() for worker in shop.workers) == len(shop.merges()), "the count of all merges")
    assert all(worker.merged() for worker in shop.workers)


def test_a_merge_whose_worker_is_killed_is_done_once_by_the_other(shop: Shop) -> None:
    table = shop.table("c")
    for _ in range(5):
        shop.stage(table)
    merge = request_merge(shop.database, table.id)
    until(shop.running, "the merge")
    (owner,) = shop.running()
    killed, other = sorted(shop.workers, key=lambda worker: worker.name != owner)
    killed.kill()
    assert (merge.id, TaskState.RUNNING, killed.name) in shop.merges(), "it was in the middle of the merge"
    until(lambda: over(shop), "the end of the merge")
    assert (merge.id, TaskState.SUCCEEDED, other.name) in shop.merges()
    assert shop.sums(table) == [5] * 4
