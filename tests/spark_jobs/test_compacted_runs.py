"""What a worker compacts by itself is what Spark would have written: the same rows, columns and field ids."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from app.core.plan.merge_plan import compile_plan
from app.core.table.history import Run
from app.services.small_merges import folds_here
from app.storage.layout import data_file
from spark_jobs.session import SparkConnection
from tests.builders import schema_of
from tests.histories import ENGINES, cut, random_history, random_table
from tests.oracle import Change, TableCase
from tests.spark_jobs.site import Site
from tests.spark_jobs.test_agreement import expected_rows, shown, visible
from tests.spark_jobs.test_folded_runs import assert_same, stored
from tests.spark_jobs.test_types import VALUES

DAY = 86_400


def both(site: Site, first: int, last: int) -> tuple[pa.Table, pa.Table]:
    """What Spark and what a worker makes of the same neighbouring runs; the latter's run stays."""
    before = list(site.runs)
    site.compact(first, last)
    by_spark = site.runs[first]
    site.runs = before
    site.compact_here(first, last)
    here = site.runs[first]
    assert (here.rows, here.live_rows) == (by_spark.rows, by_spark.live_rows)
    if not here.files:
        return pa.table({}), pa.table({})
    assert columns_of(site, here) == columns_of(site, by_spark)
    return stored(site, by_spark), stored(site, here)


def columns_of(site: Site, run: Run) -> list[tuple[str, str, str, str]]:
    """The columns of a run's file as Parquet has them."""
    with pq.ParquetFile(site.warehouse.path(*data_file(site.table_id, run.id, run.files[0].name))) as file:
        columns = [file.schema.column(place) for place in range(len(file.schema.names))]
    return [(one.path, one.physical_type, str(one.logical_type), one.converted_type) for one in columns]


def is_compacted_here(drawn: tuple[TableCase, bool]) -> bool:
    """Others are left to Spark."""
    plan = compile_plan(schema_of(drawn[0]))
    return folds_here(plan) and not plan.settles


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=12)
@given(seed=st.integers(0, 2**32))
def test_a_compaction_here_writes_what_spark_writes(
    engine: str, spark: SparkConnection, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, retracts = next(filter(is_compacted_here, (random_table(random, engine) for _ in range(1000))))
    table.options.update(random.choice(({}, {"tombstone.time-retained": "1 d"})))
    note(str(table))
    plan = compile_plan(schema_of(table))
    site = Site(spark, tmp_path_factory.mktemp("warehouse"), plan)
    history = random_history(random, table, retracts, 120)
    expected = visible(expected_rows(table, history))
    for piece in cut(random, len(history), 5):
        merge = random.choice((site.merge, site.merge_here))
        merge([history[piece]])
        site.now += random.choice((0, 1, DAY))
    first = random.randrange(len(site.runs))
    assert_same(*both(site, first, random.randint(first + 1, len(site.runs))))
    site.now += random.choice((0, 1, DAY))
    assert_same(*both(site, 0, random.randint(1, len(site.runs))))
    assert_same(*both(site, 0, len(site.runs)))
    if plan.row.retained is None:  # else late records meet no row that was forgotten
        assert shown(table, site) == expected


def test_totals_outside_their_column_are_carried_as_on_spark(spark: SparkConnection, tmp_path: Path) -> None:
    columns = (("k", "INT"), ("t", "TINYINT"), ("b", "BIGINT"), ("d", "DECIMAL(4, 2)"), ("f", "DOUBLE"))
    summed = {f"fields.{name}.aggregate-function": "sum" for name, _ in columns[1:]}
    table = TableCase(columns, ("k",), {"merge-engine": "aggregation"} | summed)
    site = Site(spark, tmp_path, compile_plan(schema_of(table)))
    large = {"t": 100, "b": 2**62, "d": Decimal("60.00"), "f": 1e308}
    for sign in (1, 1, 1, -1, -1):
        values = {name: value * sign for name, value in large.items()}
        site.merge_here([[Change("+I", {"k": 1, **values}), Change("+I", {"k": sign, **values})]])
    for first, last in ((0, 2), (1, 4), (0, 2)):
        by_spark, here = both(site, first, last)
        assert_same(by_spark, here)
    carries = [bounds.carry for bounds in site.plan.totals]
    assert any(value is not None for name in carries for value in here[name].to_pylist())


def test_every_type_passes_through_and_is_combined_as_on_spark(spark: SparkConnection, tmp_path: Path) -> None:
    columns = (("k", "INT"), *((f"c{i}", data_type) for i, data_type in enumerate(VALUES)))
    site = Site(spark, tmp_path, compile_plan(schema_of(TableCase(columns, ("k",)))))
    rows = [{f"c{i}": values[n] for i, values in enumerate(VALUES.values())} for n in range(2)]
    empty = {f"c{i}": None for i in range(len(VALUES))}
    site.merge([[Change("+I", {"k": key, **row}) for key, row in enumerate((*rows, empty, rows[0], rows[1]))]])
    site.merge_here([[Change("+I", {"k": key, **row}) for key, row in ((3, rows[1]), (4, empty), (5, rows[0]))]])
    before = repr(sorted(site.rows().items()))
    by_spark, here = both(site, 0, 2)
    assert_same(by_spark, here)
    assert here.schema.remove_metadata() == by_spark.schema.remove_metadata()
    assert repr(sorted(site.rows().items())) == before
