"""The connection on a real embedded server: what is lost is found again, jobs can be watched and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.connect.session import SparkSession

from app.core.errors import Unavailable
from spark_jobs.configs import SESSION_CONFIGS
from spark_jobs.server import EmbeddedServer
from spark_jobs.session import JobCancelled, SparkConnection


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer(tmp_path_factory.mktemp("session"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def connection(server: EmbeddedServer) -> Iterator[SparkConnection]:
    connection = SparkConnection(server)
    yield connection
    connection.close()


def test_ready_starts_nothing(server: EmbeddedServer, connection: SparkConnection) -> None:
    assert not connection.ready()
    assert not server.alive


def test_the_first_use_starts_the_server_and_sets_the_session_up(connection: SparkConnection) -> None:
    session = connection.session()
    assert {key: session.conf.get(key) for key in SESSION_CONFIGS} == SESSION_CONFIGS
    assert connection.session() is session
    assert connection.ready()


def test_workers_begin_with_the_kernel_imported_and_the_allocator_that_gives_memory_back(
    connection: SparkConnection,
) -> None:
    def begun(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys  # noqa: PLC0415

        import pyarrow  # noqa: PLC0415  # of the worker

        for _ in rows:
            found = [str("app.kernel.run" in sys.modules), pyarrow.default_memory_pool().backend_name]
            yield pyarrow.record_batch([pyarrow.array(found)], names=["found"])

    with connection.job("begun") as spark:
        rows = spark.createDataFrame([("one",)], "word string").mapInArrow(begun, "found string").collect()
    assert [row[0] for row in rows] == ["True", "system"]


def test_what_tasks_set_aside_lies_in_the_scratch_folder_of_the_server(
    server: EmbeddedServer, connection: SparkConnection
) -> None:
    """There it goes with the server; elsewhere the rows would stay once a worker is killed."""

    def told(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import tempfile  # noqa: PLC0415  # of the worker

        import pyarrow  # noqa: PLC0415

        from spark_jobs.parcels import run_parcels  # noqa: PLC0415

        for _ in rows:
            assert list(run_parcels(iter(()))) == []
            yield pyarrow.record_batch([pyarrow.array([tempfile.gettempdir()])], names=["folder"])

    with connection.job("told") as spark:
        rows = spark.createDataFrame([("one",)], "word string").mapInArrow(told, "folder string").collect()
    assert [Path(row[0]).is_relative_to(server.scratch) for row in rows] == [True]


def test_progress_counts_the_stages_of_this_thread(connection: SparkConnection) -> None:
    reported: list[tuple[float, Mapping[str, int], int]] = []

    def hear(fraction: float, counts: Mapping[str, int]) -> None:
        reported.append((fraction, counts, threading.get_ident()))

    with ThreadPoolExecutor() as pool:
        other = pool.submit(lambda: _several_stages(connection.session()))
        with connection.job("heard", hear) as spark:
            while not any(counts["stagesDone"] > 1 for _, counts, _ in reported):
                _several_stages(spark)
        other.result()
    assert {thread for _, _, thread in reported} == {threading.get_ident()}
    assert all(0 <= fraction <= 1 and counts["tasksDone"] <= counts["tasks"] for fraction, counts, _ in reported)
    assert reported[-1][0] == 1


def test_a_listener_that_fails_does_not_fail_the_job(connection: SparkConnection) -> None:
    def fail(fraction: float, counts: Mapping[str, int]) -> None:
        raise RuntimeError("the catalog is away")

    with connection.job("failing", fail) as spark:
        assert spark.range(0, 3, 1, 2).count() == 3


def test_cancel_ends_a_running_query_and_later_ones_work(connection: SparkConnection) -> None:
    running = threading.Event()

    def work() -> None:
        with connection.job("endless", lambda *_: running.set()) as spark:
            _run_for_ever(spark)

    with ThreadPoolExecutor() as pool:
        job = pool.submit(work)
        assert running.wait(60)
        assert connection.cancel("endless")
        with pytest.raises(JobCancelled, match="endless"):
            job.result(60)
    with connection.job("next") as spark:
        assert spark.range(0, 10, 1, 2).count() == 10


@pytest.mark.parametrize("another", [True, False])
def test_cancel_after_a_query_ends_the_next_and_the_job(connection: SparkConnection, another: bool) -> None:
    with pytest.raises(JobCancelled), connection.job("between") as spark:
        spark.range(0, 1, 1, 2).count()
        connection.cancel("between")
        if another:
            _run_for_ever(spark)


def test_there_is_nothing_to_cancel_under_an_unknown_tag(connection: SparkConnection) -> None:
    assert not connection.cancel("unknown")


def test_a_job_has_its_title_as_a_tag_too(connection: SparkConnection) -> None:
    with connection.job("titled", title="merge 1 of shop.a,b") as spark:
        assert spark.getTags() == {"titled", "merge 1 of shop.a b"}
    assert spark.getTags() == set()


def test_a_tag_names_one_running_job(connection: SparkConnection) -> None:
    with connection.job("twice"), pytest.raises(ValueError, match="twice"), connection.job("twice"):
        pass
    assert not connection.cancel("twice")


def test_a_short_job_does_not_wait_for_a_long_one_that_has_every_core(connection: SparkConnection) -> None:
    running = threading.Event()

    def work() -> None:
        with connection.job("long", lambda _, counts: running.set() if counts["tasksRunning"] else None) as spark:
            _many_tasks(spark)

    with ThreadPoolExecutor() as pool:
        long = pool.submit(work)
        try:
            assert running.wait(60)
            assert pool.submit(_count, connection).result(60) == 1000
            assert not long.done()
        finally:
            connection.cancel("long")
        with pytest.raises(JobCancelled):
            long.result(60)


def test_a_failed_query_raises_its_own_error_without_java(connection: SparkConnection) -> None:
    with pytest.raises(AnalysisException) as caught, connection.job("wrong") as spark:
        spark.sql("SELECT no_such_column").collect()
    assert caught.value.getCondition() == "UNRESOLVED_COLUMN.WITHOUT_SUGGESTION"
    assert "at org.apache.spark" not in str(caught.value)


def test_an_expired_session_is_replaced(connection: SparkConnection) -> None:
    expired = connection.session()
    expired.client.release_session()
    assert connection.ready()
    assert connection.session() is not expired
    assert connection.session().conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "1"


def test_a_killed_server_fails_the_job_and_is_replaced_at_the_next_use(
    server: EmbeddedServer, connection: SparkConnection
) -> None:
    connection.session()
    killed = server.remote

    def kill(fraction: float, counts: Mapping[str, int]) -> None:
        os.kill(_java_of(server), signal.SIGKILL)

    with pytest.raises(Unavailable, match="lost"), connection.job("killed", kill) as spark:
        _run_for_ever(spark)
    assert not connection.ready()
    with connection.job("after") as spark:
        assert spark.range(0, 5, 1, 2).count() == 5
    assert connection.ready()
    assert server.remote != killed


def test_a_session_that_another_thread_replaces_fails_its_jobs_as_lost(connection: SparkConnection) -> None:
    def replace(fraction: float, counts: Mapping[str, int]) -> None:
        connection.close()

    with pytest.raises(Unavailable, match="lost"), connection.job("replaced", replace) as spark:
        _run_for_ever(spark)


def test_two_connections_share_a_server(server: EmbeddedServer, connection: SparkConnection) -> None:
    other = SparkConnection(server)
    assert other.session().session_id != connection.session().session_id
    other.close()
    assert connection.session().range(0, 2, 1, 2).count() == 2


def test_an_unreachable_server_is_reported_with_what_to_check() -> None:
    connection = SparkConnection("sc://127.0.0.1:1", start_timeout_seconds=0.5)
    assert not connection.ready(0.5)
    with pytest.raises(Unavailable, match="KEYFOLD_SPARK_REMOTE"):
        connection.session()


def _several_stages(spark: SparkSession) -> None:
    spark.range(0, 3_000_000, 1, 8).selectExpr("id % 100000 AS k").groupBy("k").count().groupBy(
        "count"
    ).count().collect()


def _run_for_ever(spark: SparkSession) -> None:
    spark.range(0, 10**14, 1, 8).selectExpr("sum(CAST(id AS DOUBLE)) AS s").collect()


def _count(connection: SparkConnection) -> int:
    with connection.job("short") as spark:
        return int(spark.range(0, 1000, 1, 4).groupBy().count().collect()[0][0])


def _many_tasks(spark: SparkSession) -> None:
    """A stage whose tasks, of a tenth of a second or so, keep every core busy for longer than any test."""
    spark.range(0, 10**12, 1, 20_000).selectExpr("sum(CAST(id AS DOUBLE)) AS s").collect()


def _java_of(server: EmbeddedServer) -> int:
    listing = subprocess.run(["ps", "-A", "-o", "pid=,pgid=,comm="], capture_output=True, text=True, check=True).stdout
    rows = (line.split(None, 2) for line in listing.splitlines())
    return next(int(pid) for pid, pgid, program in rows if int(pgid) == server.pid and program.endswith("java"))
