"""A standalone Spark cluster of several processes: tasks give the same rows, whichever process dies meanwhile."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.catalog.database import CatalogDatabase
from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.bounds import Bounds
from app.core.table.history import BatchState, Run, Table, TaskState
from app.files.layout import Warehouse, data_file
from app.kernel.tasks import LEAST_TOKEN, MOST_TOKEN, Job, Progress, Result, Task
from app.services.batches.batches import Upload, accept_batch
from app.services.bodies.formats import JSON
from app.services.merging.merges import request_merge
from app.services.shared.executor import MergeSite
from spark_jobs.configs import SESSION_CONFIGS
from spark_jobs.executor import SparkJobs
from tests.builders import schema_of
from tests.cluster import Cluster, spark_cluster
from tests.histories import random_history, random_table
from tests.kernel.expected import expected_rows, shown, visible
from tests.oracle import TableCase
from tests.services.builders import run_next_merge
from tests.site import Site

SUMS = TableCase(
    (("k", "BIGINT"), ("n", "BIGINT")),
    ("k",),
    {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
)
KEYS, BATCHES, PARTS = 60_000, 6, 64
PLAN = compile_plan(schema_of(SUMS))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def jobs(cluster: Cluster) -> Iterator[SparkJobs]:
    opened = SparkJobs(cluster.remote)
    yield opened
    opened.close()


def test_sessions_are_set_up_by_the_client_whatever_the_server_is_set_to(jobs: SparkJobs) -> None:
    session = jobs.connection.session()
    assert {key: session.conf.get(key) for key in SESSION_CONFIGS} == dict(SESSION_CONFIGS)


def test_tasks_run_the_code_that_the_session_was_sent(jobs: SparkJobs) -> None:
    def where(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow  # noqa: PLC0415

        import app.kernel.run  # noqa: PLC0415  # of the worker

        for _ in rows:
            yield pyarrow.record_batch([pyarrow.array([app.kernel.run.__file__])], names=["path"])

    with jobs.connection.job("where") as spark:
        [row] = spark.createDataFrame([("one",)], "word string").mapInArrow(where, "path string").collect()
    assert "keyfold_tasks.zip" in row[0]
    assert jobs.missing() == ()


def test_a_cluster_folds_like_the_one_by_one_fold(jobs: SparkJobs, tmp_path: Path) -> None:
    """With one merge engine; test_executor.py has all of them on Spark."""
    random = Random(1)
    table, retracts = random_table(random, "partial-update")
    site = Site(tmp_path, compile_plan(schema_of(table)), jobs)
    site.ranges = 4
    history = random_history(random, table, retracts, 120)
    expected = visible(expected_rows(table, history))
    site.merge([history[:30], history[30:70]])
    site.merge([history[70:]])
    assert shown(table, site) == expected
    site.compact(0, 2)
    assert shown(table, site) == expected


def assert_every_row_once(warehouse: Warehouse, table_id: str, run: Run) -> None:
    """The files of the run hold each key once, with the sum of all batches."""
    rows = [
        (row["k"], row["n"])
        for file in run.files
        for row in pq.read_table(warehouse.path(*data_file(table_id, run.id, file.name))).to_pylist()
    ]
    total = BATCHES * (BATCHES + 1) // 2
    assert sorted(rows) == [(key, total) for key in range(KEYS)]


def kill_executor(cluster: Cluster) -> None:
    os.kill(cluster.executors(cluster.workers[0])[0], signal.SIGKILL)


def kill_worker(cluster: Cluster) -> None:
    cluster.workers.pop(0).kill()
    cluster.workers.append(cluster.start_worker())


class KillingJobs(SparkJobs):
    """Runs each merge as many tasks, and kills something in the middle of the first."""

    def __init__(self, cluster: Cluster, kill: Callable[[Cluster], None]) -> None:
        super().__init__(cluster.remote)
        self.cluster, self.kill = cluster, kill
        self.killed = False

    def run(self, tag: str, job: Job, report: Progress) -> list[Result]:
        """The results of as many tasks as the job has: files of the others go with its first."""
        [task] = job.tasks
        parts = replace(job, tasks=tuple(self._part(task, number) for number in range(PARTS)))

        def watch(fraction: float, counts: Mapping[str, int]) -> None:
            report(fraction, counts)
            if not self.killed and counts["tasksRunning"] and counts["tasksDone"]:
                self.killed = True
                self.kill(self.cluster)

        results = super().run(tag, parts, watch)
        return [replace(results[0], files=tuple(file for result in results for file in result.files))]

    @staticmethod
    def _part(task: Task, number: int) -> Task:
        """One range of tokens."""
        width = 2**64 // PARTS
        first = LEAST_TOKEN + number * width
        last = first + width - 1 if number < PARTS - 1 else MOST_TOKEN
        return replace(task, first_token=first, last_token=last, place=number)


def site_of(jobs: SparkJobs, folder: Path) -> tuple[MergeSite, Table]:
    """A catalog, and the table in it with all its batches staged."""
    database = CatalogDatabase(f"sqlite:///{folder}/catalog.sqlite")
    database.migrate()
    site = MergeSite(database, Warehouse(str(folder / "warehouse")), jobs, 600)
    with database.transaction() as repository:
        repository.databases.create("shop", {})
        table = repository.tables.create("shop", "sums", PLAN.schema)
    for number in range(1, BATCHES + 1):
        records = [{"k": key, "n": number} for key in range(KEYS)]
        upload = Upload(json.dumps({"records": records}).encode(), JSON)
        accept_batch(database, site.warehouse, "shop", "sums", upload, Bounds(KEYS))
    return site, table


@pytest.mark.parametrize("kill", [kill_executor, kill_worker])
def test_a_merge_outlives_the_processes_that_work_on_it(
    kill: Callable[[Cluster], None], cluster: Cluster, tmp_path: Path
) -> None:
    jobs = KillingJobs(cluster, kill)
    site, table = site_of(jobs, tmp_path)
    request_merge(site.database, table.id)
    assert run_next_merge(site, "worker")
    assert jobs.killed
    with site.database.reading() as repository:
        snapshot = repository.snapshots.current(table.id)
    assert snapshot is not None
    assert_every_row_once(site.warehouse, table.id, snapshot.runs[0])
    jobs.close()
    site.database.close()


def kill_server(cluster: Cluster) -> None:
    cluster.server.kill()
    cluster.server = cluster.start_server()


def test_a_merge_whose_server_dies_fails_and_the_next_try_does_it_once(cluster: Cluster, tmp_path: Path) -> None:
    jobs = KillingJobs(cluster, kill_server)
    site, table = site_of(jobs, tmp_path)
    first = request_merge(site.database, table.id)
    assert run_next_merge(site, "worker")
    assert jobs.killed
    with site.database.reading() as repository:
        failed = repository.tasks.get(table.id, first.id)
        states = {batch.state for batch in repository.batches.page(table.id, limit=100)}
    assert failed.state is TaskState.FAILED
    assert failed.error is not None
    assert failed.error.startswith("Spark was lost")
    assert states == {BatchState.STAGED}
    again = request_merge(site.database, table.id)
    assert run_next_merge(site, "worker")
    with site.database.reading() as repository:
        done = repository.tasks.get(table.id, again.id)
        snapshot = repository.snapshots.current(table.id)
    assert done.state is TaskState.SUCCEEDED, done.error
    assert snapshot is not None
    assert_every_row_once(site.warehouse, table.id, snapshot.runs[0])
    jobs.close()
    site.database.close()
