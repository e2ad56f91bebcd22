"""What Spark makes of a job: ranges of runs are not shuffled, so that each is one sorted file, however many runs there
are; and merges of other batches are the same code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from app.core.plan.merge_plan import compile_plan
from app.core.table.records import POSITION_BITS, RowKind
from spark_jobs.expressions import record_schema, records
from spark_jobs.session import SparkConnection
from spark_jobs.stored_runs import combined_runs
from spark_jobs.token_ranges import TokenRange, ranges_at_once, write_in_ranges
from tests.builders import schema_of
from tests.oracle import Change, TableCase
from tests.spark_jobs.site import Site

KEYS, RUNS = 50, 4


@pytest.fixture
def site(spark_remote: str, tmp_path: Path) -> Iterator[Site]:
    """A table of several runs, on a session that shows what Spark shuffles: nothing is taken together afterwards, and
    joins are as those of large tables.
    """
    configs = {"spark.sql.adaptive.enabled": "false", "spark.sql.autoBroadcastJoinThreshold": "-1"}
    spark = SparkConnection(spark_remote, configs=configs | {"spark.sql.shuffle.partitions": "7"})
    found = Site(spark, tmp_path, compile_plan(schema_of(TableCase((("k", "INT"), ("v", "INT")), ("k",), {}))))
    for number in range(RUNS):
        found.merge([[Change("+I", {"k": key, "v": number}) for key in range(10 * number, 10 * number + KEYS)]])
    yield found
    spark.close()


def test_a_compaction_of_several_runs_writes_one_file_for_one_range(site: Site) -> None:
    site.compact(0, RUNS)
    assert [len(run.files) for run in site.runs] == [1]
    assert len(site.rows()) == KEYS + 10 * (RUNS - 1)


@pytest.mark.parametrize("runs", [1, RUNS])
def test_a_compaction_of_several_ranges_writes_a_file_for_each(site: Site, runs: int) -> None:
    """Spark is able to take the only partitions of all branches of a union together: one task would do everything."""
    site.target_file_bytes = runs * KEYS // 4 + 1
    site.compact(0, runs)
    widths = {file.min_token >> 62: file.max_token >> 62 for file in site.runs[0].files}
    assert widths == {-2: -2, -1: -1, 0: 0, 1: 1}
    assert site.runs[0].rows == KEYS + 10 * (runs - 1)


@pytest.mark.parametrize(("found", "ranges"), [(1, 32), (3, 33), (16, 32), (40, 80), (100, 100), (1000, 128)])
def test_a_query_does_as_many_ranges_for_each_core_within_bounds(found: int, ranges: int) -> None:
    assert ranges_at_once(found) == ranges


@pytest.mark.parametrize(
    ("found", "queries"), [(2, [(32, "overwrite"), (32, "append")]), (40, [(16, "overwrite"), (48, "append")])]
)
def test_many_ranges_are_written_by_as_few_queries_as_the_cores_need(
    spark_remote: str, found: int, queries: list[tuple[int, str]]
) -> None:
    written: list[tuple[int, str]] = []

    def one_row(one: TokenRange) -> DataFrame | None:
        return None if one.first < 0 else spark.range(1)  # no run has a file in the other half

    def write(rows: DataFrame, mode: str) -> None:
        written.append((rows.count(), mode))

    connection = SparkConnection(spark_remote, configs={"spark.sql.leafNodeDefaultParallelism": str(found)})
    with connection.job("ranges") as spark:
        write_in_ranges(spark, 128, one_row, write)
    connection.close()
    assert written == queries


def explained(site: Site, one: TokenRange, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What Spark does to combine the runs in a range, step by step, without the numbers that it gives to columns."""
    with site.spark.job("explained") as spark:
        combined_runs(spark, site.plan, site.stored(site.runs), one.of, oldest=True, in_one_task=True).explain()
    steps = capsys.readouterr().out.splitlines()
    return [re.sub(r"#\d+L?|^[ :+-]*", "", step) for step in steps if re.match(r"^[ :+-]*\w", step)]


def test_no_number_of_runs_makes_a_compaction_shuffle(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a chain of joins Spark multiplies the sizes, so that from some number of runs on it expects too much for one
    task.
    """
    for number in range(RUNS, 3 * RUNS):
        site.merge([[Change("+I", {"k": key, "v": number}) for key in range(KEYS)]])
    plan = explained(site, TokenRange.all_of(1)[0], capsys)
    assert any("Aggregate" in step for step in plan)
    assert not [step for step in plan if "Exchange" in step]


def test_code_is_generated_once_for_compactions_of_any_number_of_runs(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """The JVM compiles a plan that it has not seen, which takes longer than the work: what comes after the scans holds
    no number of this compaction, and of a scan it is the run's number alone.
    """
    [every] = TokenRange.all_of(1)
    few = explained(site, every, capsys)
    for number in range(RUNS):
        site.merge([[Change("+I", {"k": key, "v": number}) for key in range(KEYS)]])
    many = explained(site, every, capsys)
    union = few.index("Union")
    assert few[: union + 1] == many[: union + 1]
    assert "Aggregate" in "".join(few[:union])
    assert len(many) - len(few) == (len(few) - union - 1), "twice the runs, twice the scans"
    own = re.compile(r"(?<=_kf_run, )\d+|Location: .*?, PushedFilters")
    assert {own.sub("", step) for step in few[union + 1 :]} == {own.sub("", step) for step in many[union + 1 :]}
    assert not [step for step in many if step.startswith("Filter")], "no token is compared: all files lie in the range"


def test_each_range_is_a_file_of_its_own_and_reads_no_rows_of_its_neighbours(site: Site) -> None:
    """A younger run's file holds tokens of all ranges; those of the older one each lie in one, or hold two."""
    site.target_file_bytes = 100
    files = []
    for number, keys in enumerate((KEYS, 3 * KEYS, KEYS)):
        site.merge([[Change("+I", {"k": key, "v": 10 + number}) for key in range(keys)]])
        site.compact(0, len(site.runs))
        tokens = [(file.min_token, file.max_token) for file in site.runs[0].files]
        files.append(len(tokens))
        assert all(before[1] < after[0] for before, after in pairwise(sorted(tokens)))
        assert (
            len(list(site.states(site.runs[0]))) == len(site.rows()) == max(KEYS + 10 * (RUNS - 1), number and 3 * KEYS)
        )
    assert files == [4, 4, 2], "250, 230 and 200 rows"
    assert [row["v"] for key, row in sorted(site.rows().items()) if row] == [12] * KEYS + [11] * 2 * KEYS


def test_the_changes_of_several_runs_are_one_file_for_one_range(site: Site) -> None:
    changes = site.changes(site.runs[:2], site.runs[2:], row_deduplicate=True)  # read in token order, or it fails
    assert sum(kind is RowKind.INSERT for kind, _ in changes) == 20
    assert sum(kind is RowKind.UPDATE_AFTER for kind, _ in changes) == KEYS - 10


def test_the_number_of_a_batch_is_no_part_of_the_code_that_merges_it(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark writes plain numbers into the code that it generates, so that each batch would have its own compiled."""
    uri, _, _ = site.stage([Change("+I", {"k": 1, "v": 1})])
    with site.spark.job("explained") as spark:
        staged = spark.read.schema(record_schema(site.plan.schema)).parquet(uri)
        records(site.plan, staged, {"any": 7}).explain()
    plan = capsys.readouterr().out
    assert "[7]" in plan
    assert str(7 << POSITION_BITS) not in plan
