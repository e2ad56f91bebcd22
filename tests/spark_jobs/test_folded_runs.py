"""What a worker folds by itself is what Spark would have written: the same rows, columns and field ids; and Spark goes
on from there.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

from app.core.plan.merge_plan import compile_plan
from app.core.table.history import Run
from app.core.table.named_columns import NAMED_COLUMN
from app.core.types.kinds import Kind
from app.services.small_merges import folds_here
from app.storage.arrow import field_id
from app.storage.layout import data_file
from spark_jobs.session import SparkConnection
from tests.builders import schema_of
from tests.histories import ENGINES, cut, examples, random_history, random_table
from tests.oracle import Change, TableCase
from tests.spark_jobs.site import Site
from tests.spark_jobs.test_agreement import expected_rows, shown, visible
from tests.spark_jobs.test_types import VALUES


def stored(site: Site, run: Run) -> pa.Table:
    """A run of one file as it lies there."""
    assert len(run.files) == 1
    [file] = run.files
    return pq.read_table(site.warehouse.path(*data_file(site.table_id, run.id, file.name)))


def both(site: Site, batches: list[list[Change]]) -> tuple[pa.Table, pa.Table]:
    """What Spark and what a worker writes of the same staged batches; the latter's run stays."""
    staged = [site.stage(changes) for changes in batches]
    site.merge_staged(staged)
    by_spark = site.runs.pop()
    site.merge_staged_here(staged)
    here = site.runs[-1]
    assert (here.rows, here.live_rows) == (by_spark.rows, by_spark.live_rows)
    if not here.files:
        return pa.table({}), pa.table({})
    return stored(site, by_spark), stored(site, here)


def assert_same(by_spark: pa.Table, here: pa.Table) -> None:
    assert here.column_names == by_spark.column_names
    assert [field_id(field) for field in here.schema] == [field_id(field) for field in by_spark.schema]
    for name in here.column_names:
        # Equal, as -0.0 and 0.0 are: which of the two a sum comes to was seen to differ.
        assert values(here, name) == values(by_spark, name), name


def values(rows: pa.Table, name: str) -> list[Any]:
    """A column. Whoever reads a word takes null for 0: of records that only retract Spark says the one, Python the
    other.
    """
    found: list[Any] = rows[name].to_pylist()
    return [word or 0 for word in found] if name.startswith(NAMED_COLUMN) else found


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=examples(6))
@given(seed=st.integers(0, 2**32))
def test_a_merge_that_is_folded_here_writes_what_spark_writes(
    engine: str, spark: SparkConnection, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, retracts = random_table(random, engine, times=2)
    note(str(table))
    plan = compile_plan(schema_of(table))
    assume(folds_here(plan))  # others are left to Spark
    site = Site(spark, tmp_path_factory.mktemp("warehouse"), plan)
    history = random_history(random, table, retracts, 60)
    for piece in cut(random, len(history), 2):
        part = history[piece]
        assert_same(*both(site, [part[batch] for batch in cut(random, len(part), 3)]))


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=examples(4))
@given(seed=st.integers(0, 2**32))
def test_merges_here_and_on_spark_and_compactions_follow_each_other_in_any_order(
    engine: str, spark: SparkConnection, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, retracts = random_table(random, engine, times=2)
    note(str(table))
    site = Site(spark, tmp_path_factory.mktemp("warehouse"), compile_plan(schema_of(table)))
    history = random_history(random, table, retracts, 120)
    expected = visible(expected_rows(table, history))
    for piece in cut(random, len(history), 4):
        part = history[piece]
        merge = random.choice((site.merge, site.merge_here))
        merge([part[batch] for batch in cut(random, len(part), 3)])
    assert shown(table, site) == expected
    first = random.randrange(len(site.runs))
    site.compact(first, random.randint(first + 1, len(site.runs)))
    assert shown(table, site) == expected, "after a compaction of neighbouring runs"
    site.compact(0, len(site.runs))
    assert shown(table, site) == expected, "after a full compaction"


def test_every_type_is_written_as_spark_writes_it_and_compacted(spark: SparkConnection, tmp_path: Path) -> None:
    columns = (("k", "INT"), *((f"c{i}", data_type) for i, data_type in enumerate(VALUES)))
    plan = compile_plan(schema_of(TableCase(columns, ("k",))))
    assert {column.type.kind for column in plan.schema.columns} == set(Kind)
    rows: list[dict[str, Any]] = [
        {"k": n, **{f"c{i}": values[n] for i, values in enumerate(VALUES.values())}} for n in range(2)
    ]
    site = Site(spark, tmp_path, plan)
    for row in (*rows, {"k": 2, **{f"c{i}": None for i in range(len(VALUES))}}):
        assert_same(*both(site, [[Change("+I", row)]]))
    before = site.rows()
    site.compact(0, 3)
    assert repr(sorted(site.rows().items())) == repr(sorted(before.items()))
