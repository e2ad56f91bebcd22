"""Tasks on a real Spark Connect server: what they come to in this process, and what is said of those that fail."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from app.core.plan.merging.merge_plan import compile_plan
from app.files.layout import staging_file
from app.kernel.run import LocalExecutor
from app.kernel.tasks import FailureKind, Job, Result, Task, Work, schema_text
from spark_jobs.executor import SparkJobs
from spark_jobs.parcels import LEAST_PARCELS, PARCEL_BYTES, parcels_of
from spark_jobs.session import JobCancelled
from tests.builders import schema_of
from tests.histories import ENGINES, cut, random_history, random_table
from tests.kernel.expected import expected_rows, shown, visible
from tests.oracle import Change, TableCase
from tests.site import Site

SUMS = TableCase(
    (("k", "BIGINT"), ("n", "BIGINT")),
    ("k",),
    {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
)


@pytest.fixture(scope="module")
def jobs(spark_remote: str) -> Iterator[SparkJobs]:
    opened = SparkJobs(spark_remote)
    yield opened
    opened.close()


def no_words(_: float, __: Mapping[str, int]) -> None:
    pass


def summed(folder: Path, jobs: SparkJobs | None = None) -> Site:
    return Site(folder, compile_plan(schema_of(SUMS)), jobs)


def task_of(site: Site, keys: int = 3) -> Task:
    """A merge of a batch of its own."""
    batch = site.stage([Change("+I", {"k": key, "n": key}) for key in range(keys)])
    schemas = {str(site.schema_id): schema_text(site.plan.schema)}
    return Task(Work.MERGE, site.table_id, schemas, site.schema_id, uuid.uuid4().hex, 1_000, batches=(batch,))


def job_of(site: Site, *tasks: Task) -> Job:
    return Job(site.warehouse.address, "a test, with a comma", tasks)


@pytest.mark.parametrize("engine", ENGINES)
def test_spark_comes_to_what_the_oracle_says_and_writes_what_this_process_writes(
    engine: str, jobs: SparkJobs, tmp_path: Path
) -> None:
    random = Random(f"{engine} on Spark")
    table, retracts = random_table(random, engine)
    plan, history = compile_plan(schema_of(table)), random_history(random, table, retracts, 120)
    sites = [Site(tmp_path / name, plan, executor) for name, executor in (("spark", jobs), ("here", LocalExecutor()))]
    for site in sites:
        site.ranges = 3
        for piece in cut(Random(1), len(history), 4):
            site.merge([history[piece]])
        if len(site.runs) > 1:
            site.compact(0, 2)
        assert shown(table, site) == visible(expected_rows(table, history))
    there, here = ([site.table(run).to_pylist() for run in site.runs] for site in sites)
    assert repr(there) == repr(here)


def test_results_come_in_the_order_of_the_tasks_however_these_are_shared_out(jobs: SparkJobs, tmp_path: Path) -> None:
    site = summed(tmp_path)
    tasks = [task_of(site, number + 1) for number in range(11)]
    assert len(parcels_of(job_of(site, *tasks))) == LEAST_PARCELS
    results = jobs.run("many", job_of(site, *tasks), no_words)
    assert [result.files[0].file.rows for result in results] == [number + 1 for number in range(11)]


def test_large_tasks_are_parcels_of_their_own(tmp_path: Path) -> None:
    task = task_of(summed(tmp_path))
    large = replace(task, batches=(replace(task.batches[0], size_bytes=PARCEL_BYTES),))
    assert len(parcels_of(Job("", "", (large,) * 7))) == 7
    assert len(parcels_of(Job("", "", (task,)))) == 1
    assert len(parcels_of(Job("", "", ()))) == LEAST_PARCELS


def test_a_task_that_fails_fails_no_other_and_says_why(jobs: SparkJobs, tmp_path: Path) -> None:
    site = summed(tmp_path)
    damaged, good, odd = (task_of(site) for _ in range(3))
    path = Path(site.warehouse.path(*staging_file(site.table_id, damaged.batches[0].file)))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    odd = replace(odd, schemas={"0": odd.schemas["0"].replace('"sum"', '"no such function"')})
    results: list[Result] = jobs.run("failing", job_of(site, damaged, good, odd), no_words)
    failures = [result.failure for result in results]
    assert failures[0] is not None
    assert failures[0].kind is FailureKind.DAMAGED
    assert failures[0].file is not None
    assert failures[0].file.path.endswith(path.name)
    assert failures[1] is None
    assert results[1].files
    assert failures[2] is not None
    assert failures[2].kind is FailureKind.FAILED


def test_progress_is_heard_and_a_cancelled_job_ends(jobs: SparkJobs, tmp_path: Path) -> None:
    site = summed(tmp_path)
    large = task_of(site, 20_000)
    tasks = [replace(large, output=uuid.uuid4().hex) for _ in range(400)]
    heard = threading.Event()

    def hear(_: float, counts: Mapping[str, int]) -> None:
        if counts["tasksRunning"]:
            heard.set()

    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(jobs.run, "cancelled", job_of(site, *tasks), hear)
        assert heard.wait(60)
        began = time.monotonic()
        jobs.cancel("cancelled")
        with pytest.raises(JobCancelled):
            job.result(60)
    assert time.monotonic() - began < 30
    assert jobs.run("next", job_of(site, task_of(site)), no_words)[0].failure is None


def test_complete_workers_report_nothing_missing(jobs: SparkJobs) -> None:
    jobs.warm_up()
    assert jobs.missing() == ()
