"""Compactions that the worker does itself, of few rows one by one and of many by whole columns, and leaves to the
executor whenever anything is out of the ordinary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq
import pytest

from app.core.plan.jobs import CompactionJob, FileSizes, StoredFile, StoredRun
from app.core.plan.merge_plan import compile_plan
from app.core.table.history import Table, Task, TaskKind, TaskState
from app.services import small_compactions
from app.services.compactions import ask_for_compaction, run_compaction, run_next_compaction
from app.services.executor import MergeSite
from app.services.leases import Lease, claim
from app.services.lookups import Images
from app.services.merges import request_merge, run_next_merge
from app.services.small_compactions import MOST_BYTES, MOST_FILES, MOST_VALUES, is_small
from app.storage.runs import read_runs
from tests.services.builders import QUIET, SUM, compact, create_table, post, schema, snapshot_of, totals
from tests.services.damaged import damage_of, files_in, flip
from tests.services.executor import BrokenExecutor, Killed, PythonExecutor, die
from tests.services.test_altered_tables import alter
from tests.services.test_partitions import merge as merge_partitioned
from tests.services.test_partitions import numbers, partitioned

OPTIONS = SUM | QUIET


@pytest.fixture(params=["one_by_one", "by_columns"])
def small(site: MergeSite, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> MergeSite:
    """A worker that compacts a few rows by itself, either way, and merges one record."""
    if request.param == "one_by_one":
        return replace(site, small_merge_records=1)
    monkeypatch.setattr(small_compactions, "MOST_VALUES", 0)
    return replace(site, small_merge_records=1, column_compaction_bytes=2**30)


def merge(site: MergeSite, table: Table, *records: Mapping[str, Any]) -> None:
    post(site.database, site.warehouse, *records, name=table.name)
    wanted = request_merge(site.database, table.id)
    assert run_next_merge(site, "worker")
    with site.database.reading() as repository:
        assert repository.tasks.get(table.id, wanted.id).state is TaskState.SUCCEEDED


def table_of_two_runs(site: MergeSite, options: Mapping[str, str] = OPTIONS, name: str = "wide") -> Table:
    """Key 1 is in both runs, keys 2 and 3 in one each."""
    table = create_table(site.database, options, name)
    merge(site, table, {"id": 1, "n": 1}, {"id": 2, "n": 2})
    merge(site, table, {"id": 1, "n": 10}, {"id": 3, "n": 3})
    return table


def last_compaction(site: MergeSite, table: Table) -> Task:
    with site.database.reading() as repository:
        return next(one for one in repository.tasks.page(table.id, limit=100) if one.kind is TaskKind.COMPACTION)


def claimed(site: MergeSite, table: Table, seconds: float = 600) -> Lease:
    """A compaction of all runs of the table, asked for and claimed."""
    with site.database.transaction() as repository:
        ask_for_compaction(repository, table.id)
    lease = claim(replace(site, lease_seconds=seconds), "compactor", TaskKind.COMPACTION)
    assert lease is not None
    return lease


def test_few_rows_need_no_executor_and_are_committed_as_its_runs_are(small: MergeSite, images: Images) -> None:
    table = table_of_two_runs(small)
    compact(replace(small, executor=BrokenExecutor(OSError("nobody is there"))), table)
    done, snapshot = last_compaction(small, table), snapshot_of(small.database, table)
    assert snapshot is not None
    assert (done.state, done.rows, done.progress, done.snapshot_id) == (TaskState.SUCCEEDED, 3, 1.0, snapshot.id)
    [run] = snapshot.runs
    assert (run.full, run.rows, run.live_rows, run.partition) == (True, 3, 3, None)
    [found] = read_runs(small.warehouse, table.id, run.id, table.schema_id, table.schema)
    assert found == replace(run, full=False, changed_at=None)
    assert totals(small.database, images, table, [1, 2, 3, 4]) == [11, 2, 3, None]


def test_a_setting_of_0_leaves_all_compactions_to_the_executor(site: MergeSite, executor: PythonExecutor) -> None:
    compact(site, table_of_two_runs(site))
    assert executor.compactions == 1


def test_many_values_bytes_or_files_are_left_to_the_executor() -> None:
    plan = compile_plan(schema(options=SUM))
    most = MOST_VALUES // len(plan.state_columns)
    for rows, size, files, small in (
        (most, MOST_BYTES, MOST_FILES, True),
        (most + 1, 1, 2, False),
        (2, MOST_BYTES + 1, 2, False),
        (2, 1, MOST_FILES + 1, False),
    ):
        runs = (StoredRun(plan, (StoredFile("file", 0, 1),) * files),)
        assert is_small(CompactionJob(plan, runs, FileSizes(rows, size, 1), "folder", 0, oldest=True)) is small


def test_each_partition_is_compacted_by_itself(small: MergeSite, images: Images) -> None:
    table = partitioned(small)
    keys = [("2024-05-01", "a", 1), ("2024-05-02", "a", 1), ("2024-05-02", "b", 1)]
    for turn in range(1, 4):
        merge_partitioned(small, table, *((*key, turn) for key in keys))
    compact(replace(small, executor=BrokenExecutor(OSError("nobody is there"))), table)
    snapshot = snapshot_of(small.database, table)
    assert snapshot is not None
    assert len(snapshot.runs) == 3
    folder = snapshot.runs[0].id.partition(".")[0]
    found = read_runs(small.warehouse, table.id, folder, table.schema_id, table.schema)
    assert {run.id: run.partition for run in found} == {run.id: run.partition for run in snapshot.runs}
    assert numbers(small, images, table, *keys) == [6, 6, 6]


def test_rows_that_unpack_to_much_are_read_and_written_a_window_at_a_time(small: MergeSite, images: Images) -> None:
    with small.database.transaction() as repository:
        repository.databases.create("shop", {})
        columns = (("id", "BIGINT"), ("n", "STRING"))
        table = repository.tables.create("shop", "wide", schema(*columns, options=QUIET))
    text = "x" * 2**21
    merge(small, table, *({"id": number, "n": text + "old"} for number in range(12)))
    merge(small, table, *({"id": number, "n": text + "new"} for number in range(6, 18)))
    compact(replace(small, executor=BrokenExecutor(OSError("nobody is there"))), table)
    [path] = files_in(small.warehouse, table.id, "runs")[-1:]
    assert pq.read_metadata(path).num_row_groups > 1
    found = totals(small.database, images, table, range(18))
    assert [value[-3:] for value in found] == ["old"] * 6 + ["new"] * 12


def test_deleted_rows_go_with_the_oldest_run_and_hide_what_lies_below_until_then(
    small: MergeSite, images: Images
) -> None:
    without = replace(small, executor=BrokenExecutor(OSError("nobody is there")))
    table = create_table(small.database, QUIET | {"num-sorted-run.compaction-trigger": "2"})
    merge(small, table, *({"id": number, "n": number} for number in range(1000)))
    oldest = snapshot_of(small.database, table)
    assert oldest is not None
    merge(small, table, {"id": 1, "_kind": "-D"}, {"id": 2000, "_kind": "-D"})
    merge(small, table, {"id": 2, "n": 7})
    assert run_next_compaction(without, "compactor")
    snapshot = snapshot_of(small.database, table)
    assert snapshot is not None
    below, above = snapshot.runs
    assert (below, above.rows, above.live_rows, above.full) == (oldest.runs[0], 3, 1, False)
    assert totals(small.database, images, table, [1, 2, 3, 2000]) == [None, 7, 3, None]
    compact(without, table)
    snapshot = snapshot_of(small.database, table)
    assert snapshot is not None
    assert [(run.rows, run.live_rows) for run in snapshot.runs] == [(999, 999)]
    assert totals(small.database, images, table, [1, 2, 3, 2000]) == [None, 7, 3, None]


def test_of_a_table_whose_rows_are_all_deleted_no_run_is_left(small: MergeSite, images: Images) -> None:
    table = create_table(small.database, QUIET)
    merge(small, table, {"id": 1, "n": 1})
    merge(small, table, {"id": 1, "_kind": "-D"})
    compact(replace(small, executor=BrokenExecutor(OSError("nobody is there"))), table)
    snapshot = snapshot_of(small.database, table)
    assert snapshot is not None
    assert snapshot.runs == ()
    merge(small, table, {"id": 1, "n": 2})
    assert totals(small.database, images, table, [1]) == [2]


def test_runs_of_an_older_schema_logs_and_changelogs_are_left_to_the_executor(
    small: MergeSite, executor: PythonExecutor, images: Images
) -> None:
    table = table_of_two_runs(small)
    alter(small, table, (1, "m"), options={"merge-engine": "aggregation", "fields.m.aggregate-function": "sum"})
    compact(small, table)
    assert executor.compactions == 1
    told = table_of_two_runs(small, OPTIONS | {"changelog-producer": "full-compaction"}, "told")
    compact(small, told)
    assert executor.compactions == 2
    assert totals(small.database, images, told, [1, 2, 3]) == [11, 2, 3]
    columns = (("id", "BIGINT"), ("at", "BIGINT"), ("n", "STRING"))
    options = QUIET | {
        "merge-engine": "aggregation",
        "sequence.field": "at",
        "fields.n.aggregate-function": "listagg",
    }
    with small.database.transaction() as repository:
        logs = repository.tables.create("shop", "logs", schema(*columns, options=options))
    assert compile_plan(logs.schema).settles
    for turn in range(2):
        merge(small, logs, {"id": 1, "at": turn, "n": "x"})
    compact(small, logs)
    assert executor.compactions == 3


def test_keys_that_share_a_token_are_left_to_the_executor(small: MergeSite, executor: PythonExecutor) -> None:
    columns = (("a", "BIGINT"), ("b", "BIGINT"), ("n", "BIGINT"))
    one, other = (1, 2), (5, -1_869_570_061_295_067_808)  # see tests/services/test_small_merges.py
    rows = [{"a": key[0], "b": key[1], "n": n} for n, key in ((1, one), (2, other))]
    with small.database.transaction() as repository:
        repository.databases.create("shop", {})
        apart = repository.tables.create("shop", "apart", schema(*columns, key=("a", "b"), options=OPTIONS))
        together = repository.tables.create("shop", "together", schema(*columns, key=("a", "b"), options=OPTIONS))
    for row in rows:
        merge(small, apart, row)
        merge(small, together, *rows)
    for number, table in enumerate((apart, together), start=1):
        compact(small, table)
        snapshot = snapshot_of(small.database, table)
        assert snapshot is not None
        assert ([run.rows for run in snapshot.runs], executor.compactions) == ([2], number)


def test_a_damaged_run_is_noticed_and_noted(small: MergeSite, executor: PythonExecutor) -> None:
    table = table_of_two_runs(small)
    path, _ = files_in(small.warehouse, table.id, "runs")
    flip(path, 100)
    compact(small, table)
    assert last_compaction(small, table).state is TaskState.FAILED
    assert executor.compactions == 0
    assert [damage.path.rpartition("/")[2] for damage in damage_of(small.database, table)] == [path.name]


def test_one_that_is_cancelled_while_it_combines_changes_nothing(small: MergeSite, images: Images) -> None:
    table = table_of_two_runs(small)
    lease = claimed(small, table)
    with small.database.transaction() as repository:
        repository.tasks.request_cancel(table.id, lease.claimed.task.id)
    assert lease.renew_once()  # as its keeper does
    before = snapshot_of(small.database, table)
    run_compaction(lease)
    cancelled = last_compaction(small, table)
    assert (cancelled.state, cancelled.error) == (
        TaskState.CANCELLED,
        "cancelled on request; the runs are as they were",
    )
    assert snapshot_of(small.database, table) == before
    compact(small, table)
    assert totals(small.database, images, table, [1, 2, 3]) == [11, 2, 3]


@pytest.mark.parametrize("knows", [False, True], ids=["told_by_the_commit", "told_by_a_renewal"])
def test_one_whose_lease_went_to_another_worker_changes_nothing(
    small: MergeSite, images: Images, *, knows: bool
) -> None:
    table = table_of_two_runs(small)
    late = claimed(small, table, seconds=-1)
    assert run_next_compaction(small, "rival")
    after = snapshot_of(small.database, table)
    if knows:
        assert not late.renew_once()
    run_compaction(late)
    assert snapshot_of(small.database, table) == after
    assert last_compaction(small, table).state is TaskState.SUCCEEDED
    assert totals(small.database, images, table, [1, 2, 3]) == [11, 2, 3]


class DyingInside(Lease):
    """Its worker dies while it combines rows."""

    def check(self) -> None:
        die()


class DyingBehind(Lease):
    """Its worker dies when all is written and nothing committed."""

    def report(self, *_: object) -> None:
        die()


@pytest.mark.parametrize("kind", [DyingInside, DyingBehind])
def test_what_a_killed_worker_began_is_done_by_the_next_one(
    small: MergeSite, images: Images, kind: type[Lease], executor: PythonExecutor
) -> None:
    table = table_of_two_runs(small)
    before = snapshot_of(small.database, table)
    held = claimed(small, table, seconds=-1)
    with pytest.raises(Killed):
        run_compaction(kind(held.site, held.claimed))
    assert snapshot_of(small.database, table) == before
    assert run_next_compaction(small, "next")
    snapshot = snapshot_of(small.database, table)
    assert snapshot is not None
    assert ([run.full for run in snapshot.runs], executor.compactions) == ([True], 0)
    assert totals(small.database, images, table, [1, 2, 3]) == [11, 2, 3]
