"""Where no key comes twice in a merge, its job is told so, or the worker does without one; else it is aggregated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq
import pytest

from app.core.plan.merge_plan import compile_plan
from app.core.table.history import Table, TaskState
from app.core.table.records import TOKEN_COLUMN
from app.services import lifted_merges
from app.services.executor import MergeSite
from app.services.lookups import Consistency, Images, get_rows
from app.services.merges import MOST_COMPARED_BATCHES
from app.storage import lifted_runs, run_files
from tests.services.builders import SUM, compact, create_table, post, schema, snapshot_of, totals
from tests.services.damaged import files_in, flip
from tests.services.executor import BrokenExecutor, PythonExecutor
from tests.services.test_altered_tables import alter
from tests.services.test_partitions import merge as merge_partitioned
from tests.services.test_partitions import numbers, partitioned
from tests.services.test_small_merges import merge

Batches = Sequence[Sequence[Mapping[str, Any]]]


def merged(site: MergeSite, table: Table, batches: Batches) -> None:
    for records in batches:
        post(site.database, site.warehouse, *records)
    assert merge(site, table).state is TaskState.SUCCEEDED


@pytest.mark.parametrize(
    ("batches", "lifted"),
    [
        ([[{"id": 1, "n": 1}, {"id": 2, "n": 2}]], 1),
        ([[{"id": 1, "n": 1}], [{"id": 2, "n": 2}]], 1),
        ([[{"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 1, "n": 4}]], 0),
        ([[{"id": 1, "n": 1}], [{"id": 2, "n": 2}, {"id": 1, "n": 4}]], 0),
    ],
)
def test_keys_are_compared_across_the_batches_of_a_merge(
    batches: Batches, lifted: int, site: MergeSite, executor: PythonExecutor, images: Images
) -> None:
    table = create_table(site.database)
    merged(site, table, batches)
    assert (executor.merges, executor.lifted) == (1, lifted)
    told = [record for records in batches for record in records]
    assert totals(site.database, images, table, [1, 2]) == [
        sum(record["n"] for record in told if record["id"] == key) for key in (1, 2)
    ]


def test_many_batches_are_not_opened_for_it(site: MergeSite, executor: PythonExecutor) -> None:
    table = create_table(site.database)
    for batches, lifted in ((MOST_COMPARED_BATCHES, 1), (MOST_COMPARED_BATCHES + 1, 1)):
        merged(site, table, [[{"id": number, "n": 1}] for number in range(batches)])
        assert executor.lifted == lifted
    assert executor.merges == 2


def test_records_of_an_older_schema_are_not_compared(site: MergeSite, executor: PythonExecutor) -> None:
    table = create_table(site.database)
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    alter(site, table, (1, "n"), (2, "m"), options=dict(SUM))
    assert merge(site, table).state is TaskState.SUCCEEDED
    assert (executor.merges, executor.lifted) == (1, 0)


def test_values_that_a_fold_writes_anew_are_folded(site: MergeSite, executor: PythonExecutor) -> None:
    options = {"merge-engine": "aggregation", "fields.b.aggregate-function": "rbm32"}
    with site.database.transaction() as repository:
        repository.databases.create("shop", {})
        table = repository.tables.create("shop", "wide", schema(("id", "INT"), ("b", "BYTES"), options=options))
    merged(site, table, [[{"id": 1, "b": None}]])
    assert (executor.merges, executor.lifted) == (1, 0)


def test_a_damaged_batch_is_told_as_before(site: MergeSite, executor: PythonExecutor) -> None:
    table = create_table(site.database)
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    [file] = files_in(site.warehouse, table.id, "staging")
    flip(file)
    task = merge(site, table)
    assert task.state is TaskState.FAILED
    assert "staging/" in str(task.error)
    assert executor.merges == 0


@pytest.fixture
def lifting(site: MergeSite) -> MergeSite:
    """A worker that folds one record by itself, and lifts the records of larger merges where it can."""
    return replace(site, small_merge_records=1, lifted_merge_bytes=2**20)


def test_a_merge_of_many_keys_needs_no_executor(lifting: MergeSite, images: Images) -> None:
    table = create_table(lifting.database)
    without = replace(lifting, executor=BrokenExecutor(OSError("nobody is there")))
    for turn in range(1, 4):
        merged(without, table, [[{"id": id_, "n": turn * id_} for id_ in range(100)], [{"id": 7, "n": 1}]])
    assert totals(lifting.database, images, table, [0, 7, 99, 100]) == [0, 6 * 7 + 3, 6 * 99, None]


@pytest.mark.parametrize(
    ("changes", "merges"),
    [
        ({}, 0),
        ({"lifted_merge_bytes": 0}, 1),
        ({"lifted_merge_bytes": 300}, 1),
        ({"small_merge_records": 0}, 1),
    ],
    ids=["bounded", "off", "too large", "all is for Spark"],
)
def test_what_the_settings_do_not_allow_is_left_to_the_executor(
    changes: Mapping[str, int], merges: int, lifting: MergeSite, executor: PythonExecutor, images: Images
) -> None:
    table = create_table(lifting.database)
    merged(replace(lifting, **changes), table, [[{"id": id_, "n": id_} for id_ in range(100)]])
    assert executor.merges == merges
    assert totals(lifting.database, images, table, [0, 99, 100]) == [0, 99, None]


def test_keys_that_come_again_are_combined_by_columns_however_often(
    lifting: MergeSite, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifted_runs, "MOST_FOLDED_VALUES", 0)
    table = create_table(lifting.database)
    without = replace(lifting, executor=BrokenExecutor(OSError("nobody is there")))
    often = {5: 601, 6: 2, 7: 3, 8: 64}
    for _ in range(2):
        records = [{"id": id_, "n": n} for id_, times in often.items() for n in range(times)]
        merged(without, table, [[{"id": 4, "n": 1}, *records[::2]], records[1::2]])
    expected = [times * (times - 1) for times in often.values()]
    assert totals(lifting.database, images, table, [4, *often, 9]) == [2, *expected, None]


def test_records_without_a_key_are_those_of_one_key(
    lifting: MergeSite, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifted_runs, "MOST_FOLDED_VALUES", 0)
    table = create_table(lifting.database, SUM | {"primary-key.nullable": "true"})
    without = replace(lifting, executor=BrokenExecutor(OSError("nobody is there")))
    for _ in range(2):
        merged(without, table, [[{"id": None, "n": 1}, {"id": 2, "n": 1}, {"id": None, "n": 3}]])
    compact(without, table)
    snapshot = snapshot_of(lifting.database, table)
    assert snapshot is not None
    assert [run.rows for run in snapshot.runs] == [2]
    assert totals(lifting.database, images, table, [None, 2]) == [8, 2]


def test_totals_that_no_type_holds_on_their_way_are_folded_one_by_one(lifting: MergeSite, images: Images) -> None:
    with lifting.database.transaction() as repository:
        repository.databases.create("shop", {})
        columns = (("id", "BIGINT"), ("n", "DECIMAL(38, 2)"))
        table = repository.tables.create("shop", "wide", schema(*columns, options=SUM))
    without = replace(lifting, executor=BrokenExecutor(OSError("nobody is there")))
    most = f"{'9' * 36}.99"
    merged(without, table, [[{"id": 1, "n": number} for number in ("1.00", most, f"-{most}", "0.01")]])
    assert totals(lifting.database, images, table, [1]) == ["1.01"]


def test_columns_of_any_name_and_type_are_counted(lifting: MergeSite, images: Images) -> None:
    columns = (("id", "BIGINT"), ("n", "BIGINT"), ("a.b", "STRING"), ("a", "ROW<`b` INT, c ARRAY<DECIMAL(38, 2)>>"))
    with lifting.database.transaction() as repository:
        repository.databases.create("shop", {})
        table = repository.tables.create("shop", "wide", schema(*columns, options=SUM))
    without = replace(lifting, executor=BrokenExecutor(OSError("nobody is there")))
    inner = {"b": 1, "c": ["1.00", None]}
    merged(without, table, [[{"id": id_, "n": 1, "a.b": "x", "a": inner if id_ % 2 else None} for id_ in range(9)]])
    assert totals(lifting.database, images, table, [0, 8]) == [1, 1]


def test_many_batches_need_no_executor_up_to_a_bound(
    lifting: MergeSite, executor: PythonExecutor, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifted_merges, "MOST_BATCHES", 40)
    table = create_table(lifting.database)
    for batches, merges in ((40, 0), (41, 1)):
        merged(lifting, table, [[{"id": number % 3, "n": 1}, {"id": 9, "n": 1}] for number in range(batches)])
        assert executor.merges == merges
    assert totals(lifting.database, images, table, [0, 1, 2, 9]) == [28, 27, 26, 81]


def test_the_record_that_arrived_last_wins_however_often_its_key_came(
    lifting: MergeSite, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifted_runs, "MOST_FOLDED_VALUES", 0)
    table = create_table(lifting.database, {})
    without = replace(lifting, executor=BrokenExecutor(OSError("nobody is there")))
    first = [{"id": n % 3, "n": n} for n in range(500)]
    merged(without, table, [first, [{"id": 2, "n": -1}, {"id": 1, "_kind": "-D"}]])
    assert totals(lifting.database, images, table, [0, 1, 2]) == [498, None, -1]


def test_what_columns_cannot_tell_of_keys_that_come_again_is_folded_one_by_one_if_it_is_few(
    lifting: MergeSite, executor: PythonExecutor, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The total that a retract leaves is calculated from its value."""
    table = create_table(lifting.database)
    values = len(compile_plan(table.schema).state_columns)
    monkeypatch.setattr(lifted_runs, "MOST_FOLDED_VALUES", 4 * values)
    others = [{"id": id_, "n": 1} for id_ in range(10)]
    replaced = [{"id": 10, "n": 1, "_kind": "-U"}, {"id": 10, "n": 3, "_kind": "+U"}]
    for turn, merges in enumerate((0, 0, 1), start=1):
        merged(lifting, table, [[*others, *replaced * turn]])
        assert executor.merges == merges
    assert totals(lifting.database, images, table, [4, 10]) == [3, 2 * (1 + 2 + 3)]


def test_a_rule_that_needs_the_values_is_left_to_the_executor(
    lifting: MergeSite, executor: PythonExecutor, images: Images
) -> None:
    table = create_table(lifting.database)
    merged(lifting, table, [[{"id": id_, "n": 5} for id_ in range(10)]])
    assert executor.merges == 0
    merged(lifting, table, [[{"id": id_, "n": 2, "_kind": "-U"} for id_ in range(10)]])
    assert executor.merges == 1, "the value is taken from the total"
    assert totals(lifting.database, images, table, [0, 9]) == [3, 3]


def test_lifted_records_of_an_older_schema_and_a_changelog_of_the_input_are_left_to_the_executor(
    lifting: MergeSite, executor: PythonExecutor, images: Images
) -> None:
    table = create_table(lifting.database)
    post(lifting.database, lifting.warehouse, {"id": 1, "n": 1}, {"id": 2, "n": 1})
    alter(lifting, table, (1, "m"), options={"merge-engine": "aggregation", "fields.m.aggregate-function": "sum"})
    assert merge(lifting, table).state is TaskState.SUCCEEDED
    assert executor.merges == 1
    told = create_table(lifting.database, SUM | {"changelog-producer": "input"}, "told")
    post(lifting.database, lifting.warehouse, {"id": 1, "n": 1}, {"id": 2, "n": 1}, name="told")
    assert merge(lifting, told).state is TaskState.SUCCEEDED
    assert executor.merges == 2
    assert totals(lifting.database, images, told, [1]) == [1]


def test_each_partition_gets_a_run_of_its_own(lifting: MergeSite, images: Images) -> None:
    table = partitioned(lifting)
    without = replace(lifting, executor=BrokenExecutor(OSError("nobody is there")))
    merge_partitioned(without, table, ("2024-05-01", "a", 1, 1), ("2024-05-02", "a", 1, 2), ("2024-05-01", "a", 2, 7))
    merge_partitioned(without, table, ("2024-05-02", "a", 1, 3), ("2024-05-02", "b", 1, 4))
    snapshot = snapshot_of(lifting.database, table)
    assert snapshot is not None
    assert sorted((run.partition, run.rows) for run in snapshot.runs) == [
        ('{"day":"2024-05-01","shop":"a"}', 2),
        ('{"day":"2024-05-02","shop":"a"}', 1),
        ('{"day":"2024-05-02","shop":"a"}', 1),
        ('{"day":"2024-05-02","shop":"b"}', 1),
    ]
    keys = [("2024-05-01", "a", 1), ("2024-05-01", "a", 2), ("2024-05-02", "a", 1), ("2024-05-02", "b", 1)]
    assert numbers(lifting, images, table, *keys) == [1, 7, 5, 4]


def test_many_rows_are_written_in_row_groups(lifting: MergeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_files, "ROW_GROUP_BYTES", 2**10)
    table = create_table(lifting.database)
    merged(lifting, table, [[{"id": id_, "n": id_} for id_ in range(500)]])
    [file] = files_in(lifting.warehouse, table.id, "runs")
    found = pq.ParquetFile(file)
    assert found.num_row_groups > 5
    tokens = found.read()[TOKEN_COLUMN].to_pylist()
    assert tokens == sorted(tokens)


def test_a_damaged_batch_that_would_be_lifted_is_told(lifting: MergeSite, executor: PythonExecutor) -> None:
    table = create_table(lifting.database)
    post(lifting.database, lifting.warehouse, *({"id": id_, "n": id_} for id_ in range(50)))
    [file] = files_in(lifting.warehouse, table.id, "staging")
    flip(file)
    task = merge(lifting, table)
    assert task.state is TaskState.FAILED
    assert "staging/" in str(task.error)
    assert executor.merges == 0


def test_columns_that_are_null_here_and_there_are_lifted_where_no_rule_asks(
    lifting: MergeSite, executor: PythonExecutor, images: Images
) -> None:
    """A row that is replaced as a whole keeps null as any value: its columns make no forms."""
    names = [f"c{place}" for place in range(12)]
    with lifting.database.transaction() as repository:
        repository.databases.create("shop", {})
        columns = (("id", "BIGINT"), ("n", "BIGINT"), *((name, "INT") for name in names))
        table = repository.tables.create("shop", "wide", schema(*columns))
    bits = {name: 1 << place for place, name in enumerate(names)}
    rows = [{"id": id_, "n": id_, **{name: id_ for name in names if id_ & bits[name]}} for id_ in range(3000)]
    merged(replace(lifting, lifted_merge_bytes=2**22), table, [rows[:1000], rows[1000:2000], rows[2000:]])
    assert executor.merges == 0
    with lifting.database.reading() as repository:
        now = repository.tables.get("shop", "wide")
        [found] = get_rows(repository, images, now, [(1365,)], Consistency.MERGED)
    assert found.row == {"id": 1365, "n": 1365} | {name: 1365 if 1365 & bits[name] else None for name in names}


def test_records_that_are_large_are_not_folded_one_by_one(lifting: MergeSite, executor: PythonExecutor) -> None:
    table = create_table(lifting.database)
    records = [{"id": id_, "n": 1} for id_ in range(10)]
    records += [{"id": 5, "n": 1, "_kind": "-U"}]
    merged(lifting, table, [records])
    assert executor.merges == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lifted_runs, "MOST_FOLDED_BYTES", 10)
        merged(lifting, table, [records])
    assert executor.merges == 1
