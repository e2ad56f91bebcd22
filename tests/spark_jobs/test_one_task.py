"""Jobs that read ranges of runs shuffle nothing, so that each range is one sorted file, however many runs there are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.core.plan.merge_plan import compile_plan
from app.core.table.records import RowKind
from spark_jobs.session import SparkConnection
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


def test_the_changes_of_several_runs_are_one_file_for_one_range(site: Site) -> None:
    changes = site.changes(site.runs[:2], site.runs[2:], row_deduplicate=True)  # read in token order, or it fails
    assert sum(kind is RowKind.INSERT for kind, _ in changes) == 20
    assert sum(kind is RowKind.UPDATE_AFTER for kind, _ in changes) == KEYS - 10
