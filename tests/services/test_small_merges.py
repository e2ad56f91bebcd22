"""Merges of few records: folded in the worker, and left to the executor whenever anything is out of the ordinary."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.core.plan.merge_plan import compile_plan
from app.core.table.history import Table, Task, TaskState
from app.core.table.keys import token_of
from app.services.executor import MergeSite
from app.services.lookups import Consistency, Images, get_rows
from app.services.merges import request_merge, run_next_merge
from app.services.small_merges import MOST_BYTES
from tests.services.builders import SUM, compact, create_table, post, schema, snapshot_of, totals
from tests.services.damaged import files_in, flip
from tests.services.executor import BrokenExecutor, GatedExecutor, PythonExecutor
from tests.services.test_altered_tables import alter
from tests.services.test_merges_at_once import DUE, merged
from tests.services.test_partitions import merge as merge_partitioned
from tests.services.test_partitions import numbers, partitioned
from tests.services.test_worker import until, working

FEW = 3


@pytest.fixture
def small(site: MergeSite) -> MergeSite:
    """A worker that folds three records by itself."""
    return replace(site, small_merge_records=FEW)


def merge(site: MergeSite, table: Table) -> Task:
    wanted = request_merge(site.database, table.id)
    assert run_next_merge(site, "worker")
    with site.database.reading() as repository:
        return repository.tasks.get(table.id, wanted.id)


def records(count: int) -> Sequence[Mapping[str, Any]]:
    return [{"id": number, "n": number} for number in range(count)]


def test_few_records_need_no_executor(small: MergeSite, images: Images) -> None:
    table = create_table(small.database)
    without = replace(small, executor=BrokenExecutor(OSError("nobody is there")))
    for turn in range(1, 4):
        post(small.database, small.warehouse, {"id": 1, "n": 10}, {"id": 1, "n": 1}, {"id": 2, "n": turn})
        task = merge(without, table)
        assert (task.state, task.records, task.rows) == (TaskState.SUCCEEDED, 3, 2)
    assert totals(small.database, images, table, [1, 2, 3]) == [33, 6, None]
    compact(small, table)
    assert totals(small.database, images, table, [1, 2, 3]) == [33, 6, None]


def test_records_of_several_batches_are_counted_together(small: MergeSite, executor: PythonExecutor) -> None:
    table = create_table(small.database)
    for count, merges in ((FEW, 0), (FEW + 1, 1)):
        for record in records(count):
            post(small.database, small.warehouse, record)
        assert merge(small, table).state is TaskState.SUCCEEDED
        assert executor.merges == merges


def test_few_large_records_are_left_to_the_executor(small: MergeSite, executor: PythonExecutor) -> None:
    columns = (("id", "BIGINT"), ("n", "STRING"))
    with small.database.transaction() as repository:
        repository.databases.create("shop", {})
        table = repository.tables.create("shop", "wide", schema(*columns))
    text = "".join(f"{number:x}" for number in range(MOST_BYTES))  # snappy finds little to leave out
    post(small.database, small.warehouse, {"id": 1, "n": text})
    assert merge(small, table).state is TaskState.SUCCEEDED
    assert executor.merges == 1


def test_a_setting_of_0_leaves_all_merges_to_the_executor(site: MergeSite, executor: PythonExecutor) -> None:
    table = create_table(site.database)
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    assert merge(site, table).state is TaskState.SUCCEEDED
    assert executor.merges == 1


def test_each_partition_gets_a_run_and_other_partitions_none(small: MergeSite, images: Images) -> None:
    table = partitioned(small)
    without = replace(small, executor=BrokenExecutor(OSError("nobody is there")))
    merge_partitioned(without, table, ("2024-05-01", "a", 1, 1), ("2024-05-02", "a", 1, 2))
    merge_partitioned(without, table, ("2024-05-02", "a", 1, 3), ("2024-05-02", "b", 1, 4))
    snapshot = snapshot_of(small.database, table)
    assert snapshot is not None
    assert len(snapshot.runs) == 4
    keys = [("2024-05-01", "a", 1), ("2024-05-02", "a", 1), ("2024-05-02", "b", 1), ("2024-05-01", "b", 1)]
    assert numbers(small, images, table, *keys) == [1, 5, 4, None]


def test_records_of_an_older_schema_and_a_changelog_of_the_input_are_left_to_the_executor(
    small: MergeSite, executor: PythonExecutor, images: Images
) -> None:
    table = create_table(small.database)
    post(small.database, small.warehouse, {"id": 1, "n": 1})
    alter(small, table, (1, "m"), options={"merge-engine": "aggregation", "fields.m.aggregate-function": "sum"})
    assert merge(small, table).state is TaskState.SUCCEEDED
    assert executor.merges == 1
    told = create_table(small.database, SUM | {"changelog-producer": "input"}, "told")
    post(small.database, small.warehouse, {"id": 1, "n": 1}, name="told")
    assert merge(small, told).state is TaskState.SUCCEEDED
    assert executor.merges == 2
    assert totals(small.database, images, told, [1]) == [1]


def test_rows_that_are_replayed_from_their_logs_are_left_to_the_executor(
    small: MergeSite, executor: PythonExecutor
) -> None:
    columns = (("id", "BIGINT"), ("at", "BIGINT"), ("n", "BIGINT"))
    options = SUM | {"sequence.field": "at", "aggregation.remove-record-on-delete": "true"}
    with small.database.transaction() as repository:
        repository.databases.create("shop", {})
        table = repository.tables.create("shop", "wide", schema(*columns, options=options))
    assert compile_plan(table.schema).replay is not None
    post(small.database, small.warehouse, {"id": 1, "at": 1, "n": 1})
    assert merge(small, table).state is TaskState.SUCCEEDED
    assert executor.merges == 1


def test_keys_that_share_a_token_are_left_to_the_executor(
    small: MergeSite, executor: PythonExecutor, images: Images
) -> None:
    columns = (("a", "BIGINT"), ("b", "BIGINT"), ("n", "BIGINT"))
    one, other = (1, 2), (5, -1_869_570_061_295_067_808)  # xxhash64 of eight bytes can be turned round
    with small.database.transaction() as repository:
        repository.databases.create("shop", {})
        table = repository.tables.create("shop", "wide", schema(*columns, key=("a", "b"), options=SUM))
    assert token_of(table.schema, one) == token_of(table.schema, other)
    rows = [{"a": key[0], "b": key[1], "n": n} for n, key in ((1, one), (2, other))]
    post(small.database, small.warehouse, *rows)
    assert merge(small, table).state is TaskState.SUCCEEDED
    assert executor.merges == 1
    with small.database.reading() as repository:
        now = repository.tables.existing(table.id)
        found = get_rows(repository, images, now, [one, other], Consistency.MERGED)
    assert [row.row and row.row["n"] for row in found] == [1, 2]


def test_a_damaged_staging_file_is_noticed_and_noted(small: MergeSite, executor: PythonExecutor) -> None:
    table = create_table(small.database)
    post(small.database, small.warehouse, {"id": 1, "n": 1})
    [path] = files_in(small.warehouse, table.id, "staging")
    flip(path)
    assert merge(small, table).state is TaskState.FAILED
    assert executor.merges == 0
    with small.database.reading() as repository:
        assert [damage.path for damage in repository.damage.page(table.id, limit=10)] == [
            f"{table.id}/staging/{path.name}"
        ]


def test_what_cannot_be_written_here_is_left_to_the_executor_and_told(
    small: MergeSite, executor: PythonExecutor, images: Images, caplog: pytest.LogCaptureFixture
) -> None:
    """A file is in the place of the table's folder of runs; the executor clears the way first."""
    table = create_table(small.database)
    post(small.database, small.warehouse, {"id": 1, "n": 1})
    [staged] = files_in(small.warehouse, table.id, "staging")
    runs = staged.parent.parent / "runs"
    runs.write_text("not a folder")

    class Clearing(PythonExecutor):
        def merge(self, *args: Any) -> None:
            runs.unlink()
            super().merge(*args)

    with caplog.at_level(logging.WARNING):
        assert merge(replace(small, executor=Clearing()), table).state is TaskState.SUCCEEDED
    assert "is left to Spark: it cannot be folded here" in caplog.text
    assert totals(small.database, images, table, [1]) == [1]


@pytest.mark.slow(reason="workers look for work in their own time")
def test_small_merges_go_on_while_a_large_one_and_a_failing_one_have_the_executor(
    small: MergeSite, images: Images
) -> None:
    slow, failing, *others = [create_table(small.database, DUE, f"t{number}") for number in range(12)]
    for table in (slow, failing):
        post(small.database, small.warehouse, *records(FEW + 1), name=table.name)
    for table in others:
        post(small.database, small.warehouse, {"id": 1, "n": 1}, name=table.name)
    executor = GatedExecutor(held=[slow.id], failing=[failing.id])
    with working(replace(small, executor=executor), poll_seconds=0.02, merges_at_once=2):
        assert until(lambda: merged(small, others))
        assert not merged(small, [slow])
        assert slow.id in executor.running
        executor.gate.set()
        assert until(lambda: merged(small, [slow]))
    assert set(executor.begun) <= {slow.id, failing.id}
    assert [totals(small.database, images, table, [1]) for table in (slow, *others)] == [[1]] * 11
