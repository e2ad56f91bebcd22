"""A standalone Spark cluster of several processes: jobs give the same rows, whichever process dies meanwhile."""

from __future__ import annotations

import json
import os
import re
import signal
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from app.catalog.database import CatalogDatabase
from app.core.plan.bounds import Bounds
from app.core.plan.jobs import FileSizes, Job, MergeJob, Progress, Result
from app.core.plan.merge_plan import compile_plan
from app.core.plan.record_decoder import DecodedRecords
from app.core.table.history import BatchState, Run, Table, TaskState
from app.services.executor import MergeSite
from app.services.formats import JSON
from app.services.ingest import Upload, accept_batch
from app.services.merges import request_merge, run_next_merge
from app.storage.layout import Warehouse, data_file, run_folder, staging_file
from app.storage.runs import read_run
from app.storage.staging import write_batch
from spark_jobs.bitmaps import register_bitmaps
from spark_jobs.configs import SESSION_CONFIGS
from spark_jobs.executor import SparkJobs
from tests.builders import schema_of
from tests.cluster import NO_PYTHON, Cluster, spark_cluster
from tests.histories import ENGINES, random_history, random_table
from tests.oracle import TableCase
from tests.services.executor import path_of
from tests.spark_jobs.site import Site
from tests.spark_jobs.test_agreement import expected_rows, shown, visible

SUMS = TableCase(
    (("k", "BIGINT"), ("n", "BIGINT")),
    ("k",),
    {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
)
KEYS, BATCHES = 20_000, 6
MANY = 32_000_000  # as if there were so many records: a merge of 32 ranges, so of 32 tasks that write
PLAN = compile_plan(schema_of(SUMS))
TASK = re.compile(r"^part-\d+")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def jobs(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkJobs]:
    opened = SparkJobs(tmp_path_factory.mktemp("jobs"), cluster.remote, "not used", None)
    yield opened
    opened.close()


def test_sessions_are_set_up_by_the_client_whatever_the_server_is_set_to(jobs: SparkJobs) -> None:
    session = jobs.connection.session()
    assert {key: session.conf.get(key) for key in SESSION_CONFIGS} == dict(SESSION_CONFIGS)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cluster_folds_like_the_one_by_one_fold(engine: str, jobs: SparkJobs, tmp_path: Path) -> None:
    random = Random(engine)
    table, retracts = random_table(random, engine)
    site = Site(jobs.connection, tmp_path, compile_plan(schema_of(table)))
    history = random_history(random, table, retracts, 120)
    expected = visible(expected_rows(table, history))
    site.merge([history[:30], history[30:70]])
    site.merge([history[70:]])
    assert shown(table, site) == expected
    site.compact(0, 2)
    assert shown(table, site) == expected


def test_the_cluster_has_no_python_so_what_it_ran_was_built_in(jobs: SparkJobs) -> None:
    with pytest.raises(PySparkException, match=NO_PYTHON), jobs.connection.job("python") as spark:
        register_bitmaps(spark)
        spark.sql("SELECT kf_rbm32_union(array(X'00', X'01'))").collect()


class Staged:
    """A table's staged batches, in which every key has one record, and the folder of the run to write."""

    def __init__(self, folder: Path) -> None:
        self.warehouse = Warehouse(str(folder))
        self.run_id = uuid.uuid4().hex
        self.batches = dict(stage(self.warehouse, "t", number) for number in range(1, BATCHES + 1))
        self.output = self.warehouse.uri(*run_folder("t", self.run_id))
        self.folder = Path(self.warehouse.path(*run_folder("t", self.run_id)))

    def names(self) -> set[str]:
        """What lies in the run's folder now."""
        return {entry.name for entry in self.folder.iterdir()} if self.folder.exists() else set()

    def read(self) -> Run:
        """The run as the service reads it."""
        return read_run(self.warehouse, "t", self.run_id, 0)


def stage(warehouse: Warehouse, table_id: str, number: int) -> tuple[str, int]:
    """One batch of a record a key, and its URI and number."""
    columns = {"k": list(range(KEYS)), "n": [number] * KEYS}
    records = DecodedRecords(columns, [0] * KEYS, list(range(KEYS)))
    name, _ = write_batch(warehouse, table_id, uuid.uuid4().hex, PLAN.schema, records)
    return warehouse.uri(*staging_file(table_id, name)), number


def assert_every_row_once(warehouse: Warehouse, table_id: str, run: Run) -> None:
    """The files of the run hold each key once, with the sum of all batches."""
    rows = [
        (row["k"], row["n"])
        for file in run.files
        for row in pq.read_table(warehouse.path(*data_file(table_id, run.id, file.name))).to_pylist()
    ]
    total = BATCHES * (BATCHES + 1) // 2
    assert sorted(rows) == [(key, total) for key in range(KEYS)]
    assert len({TASK.sub("", file.name) for file in run.files}) == 1, "all files are of one write"


def kill_executor(cluster: Cluster) -> None:
    os.kill(cluster.executors(cluster.workers[0])[0], signal.SIGKILL)


def kill_worker(cluster: Cluster) -> None:
    cluster.workers.pop(0).kill()
    cluster.workers.append(cluster.start_worker())


@pytest.mark.parametrize("kill", [kill_executor, kill_worker])
def test_a_merge_outlives_the_processes_that_work_on_it(
    kill: Callable[[Cluster], None], cluster: Cluster, jobs: SparkJobs, tmp_path: Path
) -> None:
    staged = Staged(tmp_path)
    half_written: list[set[str]] = []

    def watch(fraction: float, counts: Mapping[str, int]) -> None:
        if not half_written and is_half_written(staged.folder, counts):
            half_written.append(staged.names())
            kill(cluster)

    sizes = FileSizes(MANY, MANY, MANY)
    jobs.run(staged.run_id, MergeJob(PLAN, staged.batches, sizes, staged.output, 0), watch)
    assert half_written == [{"_temporary"}], "what tasks have written is aside until all have"
    cluster.server.wait_for("(Lost executor) ")
    assert not [name for name in staged.names() if not name.lstrip(".").startswith("part-")]
    assert_every_row_once(staged.warehouse, "t", staged.read())


def is_half_written(folder: Path, counts: Mapping[str, int]) -> bool:
    """Whether some of the tasks that write files below ``folder`` are done and some are not."""
    return counts["tasksRunning"] > 0 and len([*folder.rglob("part-*.parquet")]) >= 4


class KillingJobs(SparkJobs):
    """Kills the Spark Connect server in the middle of its first merge, and starts it again."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        super().__init__(folder, cluster.remote, "not used", None)
        self.cluster = cluster
        self.killed = False

    def run(self, tag: str, job: Job, report: Progress) -> Result:
        """A merge of many ranges, however few records there are."""
        assert isinstance(job, MergeJob)

        def watch(fraction: float, counts: Mapping[str, int]) -> None:
            report(fraction, counts)
            if not self.killed and is_half_written(path_of(job.output), counts):
                self.killed = True
                self.cluster.server.kill()
                self.cluster.server = self.cluster.start_server()

        return super().run(tag, replace(job, sizes=FileSizes(MANY, MANY, MANY)), watch)


def test_a_merge_whose_server_dies_fails_and_the_next_try_does_it_once(cluster: Cluster, tmp_path: Path) -> None:
    database = CatalogDatabase(f"sqlite:///{tmp_path}/catalog.sqlite")
    database.migrate()
    jobs = KillingJobs(cluster, tmp_path)
    site = MergeSite(database, Warehouse(str(tmp_path / "warehouse")), jobs, 600)
    table = table_with_batches(site)
    first = request_merge(database, table.id)
    assert run_next_merge(site, "worker")
    assert jobs.killed
    with database.reading() as repository:
        failed = repository.tasks.get(table.id, first.id)
        states = {batch.state for batch in repository.batches.page(table.id, limit=100)}
    assert failed.state is TaskState.FAILED
    assert failed.error is not None
    assert failed.error.startswith("Spark was lost")
    assert states == {BatchState.STAGED}
    again = request_merge(database, table.id)
    assert run_next_merge(site, "worker")
    with database.reading() as repository:
        done = repository.tasks.get(table.id, again.id)
        snapshot = repository.snapshots.current(table.id)
    assert done.state is TaskState.SUCCEEDED, done.error
    assert snapshot is not None
    assert_every_row_once(site.warehouse, table.id, snapshot.runs[0])
    jobs.close()
    database.close()


def table_with_batches(site: MergeSite) -> Table:
    """The table in a catalog, with all its batches staged."""
    with site.database.transaction() as repository:
        repository.databases.create("shop", {})
        table = repository.tables.create("shop", "sums", PLAN.schema)
    for number in range(1, BATCHES + 1):
        records = [{"k": key, "n": number} for key in range(KEYS)]
        upload = Upload(json.dumps({"records": records}).encode(), JSON)
        accept_batch(site.database, site.warehouse, "shop", "sums", upload, Bounds(KEYS))
    return table
