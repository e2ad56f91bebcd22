"""The worker's threads: woken by what this process commits, merging and compacting beside each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from app.core.errors import Unavailable
from app.core.table.history import Table, TaskKind, TaskState
from app.services.explaining.lateness import late_report
from app.services.merging.merges import request_merge
from app.services.rows.lookups import Images
from app.services.shared.executor import MergeSite
from app.worker import Worker
from tests.services.builders import (
    QUIET,
    SUM,
    create_table,
    merge,
    post,
    request_compaction,
    snapshot_of,
    tasks_of,
    totals,
)
from tests.services.executor import PythonExecutor

pytestmark = pytest.mark.slow(reason="a worker looks for work in its own time")

PATIENCE_SECONDS = 20.0


@contextmanager
def working(site: MergeSite, merges_at_once: int = 1) -> Iterator[Worker]:
    worker = Worker(site, merges_at_once)
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()


def until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def succeeded(site: MergeSite, table: Table, kind: TaskKind) -> int:
    return sum(task.state is TaskState.SUCCEEDED for task in tasks_of(site.database, table, kind))


@pytest.fixture
def _no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that nothing wakes looks again after an hour."""
    monkeypatch.setattr("app.worker.IDLE_SECONDS", 3600.0)
    monkeypatch.setattr("app.worker.ALONE_SECONDS", 3600.0)


@pytest.mark.usefixtures("_no_looks")
def test_a_request_wakes_a_worker_that_would_not_look_for_an_hour(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, SUM | QUIET)
    with working(site):
        for number in range(1, 4):
            post(site.database, site.warehouse, {"id": 1, "n": 1})
            request_merge(site.database, table.id)
            assert until(lambda number=number: succeeded(site, table, TaskKind.MERGE) == number)  # type: ignore[misc]
    assert totals(site.database, images, table, [1]) == [3]


@pytest.mark.usefixtures("_no_looks")
def test_a_worker_looks_again_when_the_next_table_is_due(site: MergeSite) -> None:
    table = create_table(site.database, SUM | {"merge.max-staleness": "1 s"})
    with working(site):
        post(site.database, site.warehouse, {"id": 1, "n": 1})
        assert until(lambda: succeeded(site, table, TaskKind.MERGE) == 1)


def test_a_worker_compacts_what_its_merges_ask_for(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, SUM | {"num-sorted-run.compaction-trigger": "2", "merge.max-staleness": "0 s"})
    with working(site):
        for number in range(1, 5):
            post(site.database, site.warehouse, {"id": 1, "n": 1})
            assert until(lambda number=number: succeeded(site, table, TaskKind.MERGE) >= number)  # type: ignore[misc]
        assert until(lambda: succeeded(site, table, TaskKind.COMPACTION) >= 1)
    assert totals(site.database, images, table, [1]) == [4]
    assert len(snapshot_of(site.database, table).runs) < 4


def test_many_compactions_are_done_in_a_few_looks(site: MergeSite, images: Images) -> None:
    tables = [create_table(site.database, SUM | QUIET, f"t{number}") for number in range(12)]
    for table in tables:
        for _ in range(2):
            merge(site, table, {"id": 1, "n": 1})
        request_compaction(site.database, table)
    with working(site):
        assert until(lambda: all(succeeded(site, table, TaskKind.COMPACTION) for table in tables))
    assert [totals(site.database, images, table, [1]) for table in tables] == [[2]] * len(tables)


def test_a_worker_at_rest_commits_nothing(site: MergeSite) -> None:
    """A commit would wake it again, and all others."""
    create_table(site.database)
    with working(site):
        time.sleep(0.3)
        before = site.database.commits
        time.sleep(0.3)
        assert site.database.commits == before


class StartingExecutor(PythonExecutor):
    """One whose Spark takes five seconds to answer, or until it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.closed = threading.Event()
        self.answered = threading.Event()

    def warm_up(self) -> None:
        self.begun.set()
        if self.closed.wait(5):
            raise Unavailable("Spark was closed")
        self.answered.set()


def test_a_worker_that_is_stopped_does_not_wait_until_spark_has_started(
    site: MergeSite, caplog: pytest.LogCaptureFixture
) -> None:
    executor = StartingExecutor()
    worker = Worker(replace(site, executor=executor))
    worker.start()
    assert executor.begun.wait(PATIENCE_SECONDS)
    worker.stop(60)
    assert not executor.answered.is_set()
    executor.closed.set()
    assert until(lambda: not any(thread.name == f"{worker.name}-merge" for thread in threading.enumerate()))
    assert caplog.text == ""


def test_a_worker_counts_what_came_late_behind_its_merges(site: MergeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.services.upkeep.late_counting.GATHER_SECONDS", 0.05)
    table = create_table(site.database, {"sequence.field": "n", **QUIET})
    with working(site):
        for number in (5, 3):
            post(site.database, site.warehouse, {"id": 1, "n": number})
            request_merge(site.database, table.id)
            assert until(lambda: counted(site, table) == (5, 3).index(number) + 1)  # noqa: B023  # asked at once
    with site.database.reading() as repository:
        [lane] = late_report(repository, table, None).lanes
    assert [(sender.counts.records, sender.counts.against_older) for sender in lane.senders] == [(2, 1)]


def counted(site: MergeSite, table: Table) -> int:
    with site.database.reading() as repository:
        return late_report(repository, table, None).counted
