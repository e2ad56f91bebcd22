"""Tasks are values: they travel as text, may run twice, and write where they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.core.plan.merging.merge_plan import compile_plan
from app.files import run_files
from app.files.layout import data_file
from app.files.reading import token_bounds
from app.kernel.plan_tasks import Plan
from app.kernel.run import run_tasks
from app.kernel.tasks import Result, Task, Work, from_text, to_text
from tests.builders import schema_of
from tests.histories import random_history, random_table
from tests.kernel.test_failures import one_task
from tests.oracle import Change, TableCase
from tests.site import Site


def aggregated(folder: Path) -> Site:
    table, retracts = random_table(Random(3), "aggregation")
    site = Site(folder, compile_plan(schema_of(table)))
    for turn in range(3):
        site.merge([random_history(Random(turn), table, retracts, 60)])
    return site


@pytest.mark.parametrize(
    ("rows", "size", "file_bytes", "count"),
    [
        (1, 4096, 1, 1),  # no task without a row
        (52, 4096, 1, 64),
        (1_000_000, 100 * 2**20, 128 * 2**20, 1),
        (1_000_001, 100 * 2**20, 128 * 2**20, 2),
        (1_000_000, 129 * 2**20, 128 * 2**20, 2),
        (5_000_000, 3 * 2**30, 128 * 2**20, 32),
    ],
)
def test_a_merge_has_as_many_tasks_as_its_rows_and_files_need(
    tmp_path: Path, rows: int, size: int, file_bytes: int, count: int
) -> None:
    batch = replace(aggregated(tmp_path).batches[0], records=rows, size_bytes=size)
    tasks = Plan(batch.table_id, {}, 0, 0, file_bytes).merge([batch], "f" * 32, None)
    assert len(tasks) == count
    assert (tasks[0].first_token, tasks[-1].last_token) == (-(2**63), 2**63 - 1)
    assert [task.first_token for task in tasks[1:]] == [task.last_token + 1 for task in tasks[:-1]]


def test_tasks_and_results_travel_as_text(tmp_path: Path) -> None:
    site = aggregated(tmp_path)
    for task in (
        one_task(site, Work.MERGE, batches=tuple(site.batches), changelog="c" * 32, partition='{"ä":"\\"\n"}'),
        one_task(site, Work.CHANGES, runs=tuple(site.runs), newer=1, changelog="c" * 32, ignored_fields=("ä", "'")),
        one_task(site, Work.COMPACT, runs=tuple(site.runs), oldest=True, first_token=-(2**63), last_token=-1),
    ):
        assert from_text(Task, to_text(task)) == task
        [result] = run_tasks(site.warehouse, [task])
        assert result.failure is None
        assert result.rows > 0
        assert from_text(Result, to_text(result)) == result


@pytest.mark.parametrize("work", [Work.MERGE, Work.COMPACT])
def test_a_task_that_runs_twice_writes_under_two_names(work: Work, tmp_path: Path) -> None:
    site = aggregated(tmp_path)
    read = {"batches": tuple(site.batches)} if work is Work.MERGE else {"runs": tuple(site.runs), "oldest": True}
    task = one_task(site, work, **read)
    first, second = run_tasks(site.warehouse, [task]), run_tasks(site.warehouse, [task])
    files = [result.files[0].file for [result] in (first, second)]
    assert files[0].name != files[1].name
    assert files[0].digest == files[1].digest
    tables = [pq.read_table(site.warehouse.path(*data_file(site.table_id, "f" * 32, file.name))) for file in files]
    assert repr(tables[0].to_pylist()) == repr(tables[1].to_pylist())


def test_a_compaction_of_one_partition_stays_in_it(tmp_path: Path) -> None:
    table = TableCase((("p", "STRING"), ("k", "INT"), ("v", "INT")), ("p", "k"), {})
    site = Site(tmp_path, compile_plan(replace(schema_of(table), partition_keys=("p",))))
    for turn in range(2):
        site.merge([[Change("+I", {"p": p, "k": k, "v": turn}) for p in "ab" for k in range(5)]])
    of_a = tuple(run for run in site.runs if run.partition == '{"p":"a"}')
    task = one_task(site, Work.COMPACT, runs=of_a, oldest=True, partition='{"p":"a"}')
    [result] = run_tasks(site.warehouse, [task])
    assert [(file.partition, file.file.rows, file.live_rows) for file in result.files] == [('{"p":"a"}', 5, 5)]


def test_row_groups_do_not_get_smaller_with_each_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for bytes_of in ("WINDOW_BYTES", "_COLUMN_BYTES"):
        monkeypatch.setattr(f"app.kernel.runs.{bytes_of}", 2**12)  # several windows of few rows
    monkeypatch.setattr("app.kernel.write.ROW_GROUP_BYTES", 2**15)
    table = TableCase((("k", "INT"), ("a", "STRING")), ("k",), {})
    site = Site(tmp_path, compile_plan(schema_of(table)))
    for turn in range(4):
        site.merge([[Change("+I", {"k": key, "a": "x" * 100}) for key in range(0, 1000, turn + 1)]])
        site.compact(0, len(site.runs))
        [file] = site.runs[0].files
        parquet = pq.read_metadata(site.warehouse.path(*data_file(site.table_id, site.runs[0].id, file.name)))
        rows = [parquet.row_group(place).num_rows for place in range(parquet.num_row_groups)]
        assert len(rows) < 8
        assert min(rows[:-1], default=200) > 100


def test_files_have_what_readers_need(tmp_path: Path) -> None:
    """Statistics of the token in each row group, page checksums, and types that do not depend on Arrow's schema."""
    site = aggregated(tmp_path)
    site.compact(0, 3)
    [file] = site.runs[0].files
    path = site.warehouse.path(*data_file(site.table_id, site.runs[0].id, file.name))
    assert token_bounds(pq.read_metadata(path).row_group(0)) == (file.min_token, file.max_token)
    pq.ParquetFile(path, page_checksum_verification=True).read()
    assert pq.read_schema(path).remove_metadata().equals(run_files.run_schema(site.plan).remove_metadata())
    assert isinstance(pq.read_table(path), pa.Table)
