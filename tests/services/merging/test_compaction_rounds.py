"""Small compactions of several tables share a job; each is committed, or fails, by itself."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pyarrow.parquet as pq
import pytest

from app.core.table.history import CatalogTask, Table, TaskKind, TaskState
from app.kernel.tasks import Job, Progress, Result
from app.services.merging.compaction_rounds import SMALL_BYTES, run_small_compactions
from app.services.merging.leases import Lease
from app.services.rows.lookups import Images
from app.services.shared.executor import MergeSite
from tests.services.builders import (
    QUIET,
    SUM,
    claim,
    compact,
    create_table,
    merge,
    request_compaction,
    run_next_compaction,
    snapshot_of,
    tasks_of,
    totals,
)
from tests.services.damaged import files_in, flip
from tests.services.executor import PythonExecutor
from tests.services.merging.test_worker import succeeded, until, working
from tests.written import read_run

OPTIONS = SUM | QUIET


def table_of_two_runs(site: MergeSite, options: Mapping[str, str] = OPTIONS, name: str = "wide") -> Table:
    """Key 1 is in both runs, keys 2 and 3 in one each."""
    table = create_table(site.database, options, name)
    merge(site, table, {"id": 1, "n": 1}, {"id": 2, "n": 2})
    merge(site, table, {"id": 1, "n": 10}, {"id": 3, "n": 3})
    return table


def compaction_of(site: MergeSite, table: Table) -> CatalogTask:
    return tasks_of(site.database, table, TaskKind.COMPACTION)[0]


def round_of(site: MergeSite, *tables: Table) -> list[Lease]:
    """Compactions of all runs of the tables, asked for and claimed."""
    leases = []
    for number, table in enumerate(tables):
        request_compaction(site.database, table)
        lease = claim(site, f"round-{number}", TaskKind.COMPACTION)
        assert lease is not None
        leases.append(lease)
    return leases


def test_tables_share_one_job_and_each_is_committed(site: MergeSite, executor: PythonExecutor, images: Images) -> None:
    tables = [table_of_two_runs(site, name=name) for name in ("a", "b", "c")]
    run_small_compactions(site, round_of(site, *tables))
    assert executor.compactions == 1
    for table in tables:
        done, snapshot = compaction_of(site, table), snapshot_of(site.database, table)
        assert (done.state, done.rows, done.progress, done.snapshot_id) == (TaskState.SUCCEEDED, 3, 1.0, snapshot.id)
        [run] = snapshot.runs
        assert (run.full, run.rows, run.live_rows, run.partition) == (True, 3, 3, None)
        assert read_run(site.warehouse, table.id, run.id, table.schema_id).files == run.files
        assert totals(site.database, images, table, [1, 2, 3, 4]) == [11, 2, 3, None]


def test_a_damaged_run_fails_its_own_compaction_alone(site: MergeSite, images: Images) -> None:
    bad, good = (table_of_two_runs(site, name=name) for name in ("bad", "good"))
    flip(files_in(site.warehouse, bad.id, "runs")[0])
    run_small_compactions(site, round_of(site, bad, good))
    failed = compaction_of(site, bad)
    assert (failed.state, "damaged" in (failed.error or "")) == (TaskState.FAILED, True)
    assert compaction_of(site, good).state is TaskState.SUCCEEDED
    assert totals(site.database, images, good, [1, 2, 3]) == [11, 2, 3]


class Refusing(PythonExecutor):
    """Refuses jobs of more than one task."""

    def compact(self, tag: str, job: Job, report: Progress) -> list[Result]:
        if len(job.tasks) > 1:
            raise OSError("the job failed")
        return super().compact(tag, job, report)


def test_a_job_that_fails_is_done_again_table_by_table(site: MergeSite, images: Images) -> None:
    executor = Refusing()
    tables = [table_of_two_runs(site, name=name) for name in ("a", "b")]
    site = replace(site, executor=executor)
    run_small_compactions(site, round_of(site, *tables))
    assert executor.compactions == 2
    for table in tables:
        assert totals(site.database, images, table, [1, 2, 3]) == [11, 2, 3]


def test_who_lost_the_lease_commits_nothing(site: MergeSite, images: Images) -> None:
    lost, kept = (table_of_two_runs(site, name=name) for name in ("lost", "kept"))
    leases = round_of(site, lost, kept)
    with site.database.transaction() as repository:
        repository.claimed_tasks.hand_back(leases[0].claimed.task.id, "round-0")
    run_small_compactions(site, leases)
    found = [snapshot_of(site.database, table) for table in (lost, kept)]
    assert [len(snapshot.runs) for snapshot in found if snapshot] == [2, 1]
    assert totals(site.database, images, lost, [1, 2, 3]) == [11, 2, 3]


def test_a_compaction_of_nothing_ends_well(site: MergeSite) -> None:
    table = create_table(site.database, OPTIONS)
    run_small_compactions(site, round_of(site, table))
    assert compaction_of(site, table).state is TaskState.SUCCEEDED


class Gated(PythonExecutor):
    """Compactions of the tables ``held`` (by id) wait until they are let."""

    def __init__(self) -> None:
        super().__init__()
        self.held: set[str] = set()
        self.begun, self.gate = threading.Event(), threading.Event()

    def compact(self, tag: str, job: Job, report: Progress) -> list[Result]:
        if job.tasks[0].table_id in self.held:
            self.begun.set()
            assert self.gate.wait(60)
        return super().compact(tag, job, report)


def large_table(site: MergeSite) -> Table:
    """A table of two runs, one of them so large that its compactions share no job."""
    table = create_table(site.database, QUIET, "large", (("id", "BIGINT"), ("n", "STRING")))
    random = Random(7)
    merge(site, table, *({"id": number, "n": random.randbytes(SMALL_BYTES // 200).hex()} for number in range(201)))
    merge(site, table, {"id": 1, "n": "new"})
    return table


@pytest.mark.slow(reason="a worker looks for work in its own time")
def test_small_ones_of_other_tables_do_not_wait_until_a_large_one_is_over(site: MergeSite) -> None:
    others = [table_of_two_runs(site, name=f"t{number}") for number in range(3)]
    large = large_table(site)
    executor = Gated()
    executor.held.add(large.id)
    with working(replace(site, executor=executor)):
        request_compaction(site.database, large)
        assert executor.begun.wait(20)
        for table in others:
            request_compaction(site.database, table)
        assert until(lambda: all(succeeded(site, table, TaskKind.COMPACTION) for table in others))
        assert not succeeded(site, large, TaskKind.COMPACTION)
        executor.gate.set()
        assert until(lambda: bool(succeeded(site, large, TaskKind.COMPACTION)))


def test_rows_that_unpack_to_much_are_read_and_written_a_window_at_a_time(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, QUIET, columns=(("id", "BIGINT"), ("n", "STRING")))
    text = "x" * 2**21
    merge(site, table, *({"id": number, "n": text + "old"} for number in range(12)))
    merge(site, table, *({"id": number, "n": text + "new"} for number in range(6, 18)))
    compact(site, table)
    [path] = files_in(site.warehouse, table.id, "runs")[-1:]
    assert pq.read_metadata(path).num_row_groups > 1
    found = totals(site.database, images, table, range(18))
    assert [value[-3:] for value in found] == ["old"] * 6 + ["new"] * 12


def test_deleted_rows_go_with_the_oldest_run_and_hide_what_lies_below_until_then(
    site: MergeSite, images: Images
) -> None:
    table = create_table(site.database, QUIET | {"num-sorted-run.compaction-trigger": "2"})
    merge(site, table, *({"id": number, "n": number} for number in range(1000)))
    oldest = snapshot_of(site.database, table)
    merge(site, table, {"id": 1, "_kind": "-D"}, {"id": 2000, "_kind": "-D"})
    merge(site, table, {"id": 2, "n": 7})
    assert run_next_compaction(site, "compactor")
    snapshot = snapshot_of(site.database, table)
    below, above = snapshot.runs
    assert (below, above.rows, above.live_rows, above.full) == (oldest.runs[0], 3, 1, False)
    assert totals(site.database, images, table, [1, 2, 3, 2000]) == [None, 7, 3, None]
    compact(site, table)
    snapshot = snapshot_of(site.database, table)
    assert [(run.rows, run.live_rows) for run in snapshot.runs] == [(999, 999)]
    assert totals(site.database, images, table, [1, 2, 3, 2000]) == [None, 7, 3, None]


def test_of_a_table_whose_rows_are_all_deleted_no_run_is_left(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, QUIET)
    merge(site, table, {"id": 1, "n": 1})
    merge(site, table, {"id": 1, "_kind": "-D"})
    compact(site, table)
    assert snapshot_of(site.database, table).runs == ()
    merge(site, table, {"id": 1, "n": 2})
    assert totals(site.database, images, table, [1]) == [2]
