"""What a worker compacts by whole columns is what Spark would have written, and what rows combined one by one come
to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from app.core.plan.fold import combine_all, compacted
from app.core.plan.merge_plan import compile_plan
from app.core.plan.unknown_states import combines_by_form
from app.core.table.history import Run
from app.core.table.records import TOKEN_COLUMN
from app.services.small_compactions import compacts_here
from app.storage import combined_columns, combined_runs, run_files
from app.storage.layout import data_file
from app.storage.run_files import LeftToSpark, state_table
from spark_jobs.session import SparkConnection
from tests.builders import schema_of
from tests.histories import ENGINES, KEYS, cut, examples, random_history, random_table
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
    site.combine_here(first, last)
    here = site.runs[first]
    assert (here.rows, here.live_rows) == (by_spark.rows, by_spark.live_rows)
    if not here.files:
        return pa.table({}), pa.table({})
    assert [file.rows for file in here.files] == [file.rows for file in by_spark.files]
    assert columns_of(site, here) == columns_of(site, by_spark)
    return of_files(site, by_spark), of_files(site, here)


def columns_of(site: Site, run: Run) -> list[tuple[str, str, str, str]]:
    """The columns of a run's file as Parquet has them."""
    with pq.ParquetFile(site.warehouse.path(*data_file(site.table_id, run.id, run.files[0].name))) as file:
        columns = [file.schema.column(place) for place in range(len(file.schema.names))]
    return [(one.path, one.physical_type, str(one.logical_type), one.converted_type) for one in columns]


def of_files(site: Site, run: Run) -> pa.Table:
    return pa.concat_tables([stored(site, replace(run, files=(file,))) for file in run.files])


def is_combined_here(drawn: tuple[TableCase, bool]) -> bool:
    """Others are left to Spark."""
    return compacts_here(compile_plan(schema_of(drawn[0])))


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=examples(12))
@given(seed=st.integers(0, 2**32))
def test_a_compaction_by_columns_writes_what_spark_writes(
    engine: str, spark: SparkConnection, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, retracts = next(filter(is_combined_here, (random_table(random, engine) for _ in range(1000))))
    table.options.update(random.choice(({}, {"tombstone.time-retained": "1 d"})))
    note(str(table))
    plan = compile_plan(schema_of(table))
    site = Site(spark, tmp_path_factory.mktemp("warehouse"), plan)
    site.target_file_bytes = random.choice((KEYS // 4, 1024**2))
    history = random_history(random, table, retracts, 120)
    expected = visible(expected_rows(table, history))
    for piece in cut(random, len(history), 5):
        merge = random.choice((site.merge, site.merge_here))
        merge([history[piece]])
        site.now += random.choice((0, 1, DAY))
    first = random.randrange(len(site.runs))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(combined_runs, "WINDOW_BYTES", random.choice((2**10, 2**25)))
        assert_same(*both(site, first, random.randint(first + 1, len(site.runs))))
        site.now += random.choice((0, 1, DAY))
        assert_same(*both(site, 0, random.randint(1, len(site.runs))))
        assert_same(*both(site, 0, len(site.runs)))
    if plan.row.retained is None:  # else late records meet no row that was forgotten
        assert shown(table, site) == expected


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=examples(25))
@given(seed=st.integers(0, 2**32))
def test_a_compaction_by_columns_is_what_rows_come_to_one_by_one(
    engine: str, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Without Spark, so that it is many tables, and to the byte of what Python shows: -0.0 is not 0.0 here."""
    random = Random(seed)
    table, retracts = next(filter(is_combined_here, (random_table(random, engine, times=2) for _ in range(1000))))
    table.options.update(random.choice(({}, {"tombstone.time-retained": "1 d"})))
    note(str(table))
    plan = compile_plan(schema_of(table))
    site = Site(None, tmp_path_factory.mktemp("warehouse"), plan)  # type: ignore[arg-type]  # nothing asks for it
    site.target_file_bytes = random.choice((KEYS // 4, 1024**2))
    history = random_history(random, table, retracts, 120)
    for piece in cut(random, len(history), 5):
        site.merge_here([history[piece]])
        site.now += random.choice((0, 1, DAY))
    first = random.choice((0, random.randrange(len(site.runs))))
    chosen = [run for run in site.runs[first:] if run.files]
    expected = one_by_one(site, chosen, oldest=first == 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(combined_runs, "WINDOW_BYTES", random.choice((2**8, 2**10, 2**12, 2**25)))
        site.combine_here(first, len(site.runs))
    here = site.runs[first].files and of_files(site, site.runs[first])
    assert repr(here.to_pylist() if here else []) == repr(expected.to_pylist())


def one_by_one(site: Site, runs: Sequence[Run], *, oldest: bool) -> pa.Table:
    """What the fold in Python keeps of the state rows of ``runs``."""
    by_token: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for run in runs:
        for row in of_files(site, run).to_pylist():
            by_token[row.pop(TOKEN_COLUMN)].append(row)
    states = {token: combine_all(site.plan, of_key) for token, of_key in sorted(by_token.items())}
    kept = {token: compacted(site.plan, state or {}, site.now, oldest=oldest) for token, state in states.items()}
    return state_table(site.plan, [(token, state) for token, state in kept.items() if state is not None])


def test_row_groups_do_not_get_smaller_with_each_compaction(spark: SparkConnection, tmp_path: Path) -> None:
    plan = compile_plan(schema_of(TableCase((("k", "INT"), ("a", "STRING")), ("k",))))
    site = Site(spark, tmp_path, plan)
    for turn in range(4):
        site.merge_here([[Change("+I", {"k": key, "a": "x" * 100}) for key in range(0, 1000, turn + 1)]])
        if turn:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(combined_runs, "WINDOW_BYTES", 2**12)
                patch.setattr(run_files, "ROW_GROUP_BYTES", 2**15)
                site.combine_here(0, 2)
        [file] = site.runs[0].files
        with pq.ParquetFile(site.warehouse.path(*data_file(site.table_id, site.runs[0].id, file.name))) as parquet:
            rows = [parquet.metadata.row_group(place).num_rows for place in range(parquet.metadata.num_row_groups)]
        assert len(rows) == 1 if not turn else len(rows) < 8
        assert min(rows[:-1], default=200) > 100


def test_totals_outside_their_column_are_carried_as_on_spark(spark: SparkConnection, tmp_path: Path) -> None:
    columns = (
        ("k", "INT"),
        ("t", "TINYINT"),
        ("b", "BIGINT"),
        ("d", "DECIMAL(4, 2)"),
        ("e", "DECIMAL(38, 2)"),
        ("f", "DOUBLE"),
    )
    summed = {f"fields.{name}.aggregate-function": "sum" for name, _ in columns[1:]}
    table = TableCase(columns, ("k",), {"merge-engine": "aggregation"} | summed)
    site = Site(spark, tmp_path, compile_plan(schema_of(table)))
    assert combines_by_form(site.plan)
    large = {"t": 100, "b": 2**62, "d": Decimal("60.00"), "e": Decimal("1e35"), "f": 1e308}
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
    partial = {"merge-engine": "partial-update"}
    for place, options in enumerate(({}, partial)):
        site = Site(spark, tmp_path / str(place), compile_plan(schema_of(TableCase(columns, ("k",), options))))
        rows = [{f"c{i}": values[n] for i, values in enumerate(VALUES.values())} for n in range(2)]
        empty = {f"c{i}": None for i in range(len(VALUES))}
        site.merge([[Change("+I", {"k": key, **row}) for key, row in enumerate((*rows, empty, rows[0], rows[1]))]])
        site.merge_here([[Change("+I", {"k": key, **row}) for key, row in ((3, rows[1]), (4, empty), (5, rows[0]))]])
        before = repr(sorted(site.rows().items()))
        by_spark, here = both(site, 0, 2)
        assert_same(by_spark, here)
        assert here.schema.remove_metadata() == by_spark.schema.remove_metadata()
        assert repr(sorted(site.rows().items())) == before


ORDERED = ["BOOLEAN", "TINYINT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(38, 10)", "STRING", "DATE", "TIME(3)"]
ORDERED += ["TIMESTAMP(6)", "TIMESTAMP_LTZ(6)"]


@pytest.mark.parametrize("data_type", ORDERED)
@pytest.mark.parametrize("direction", ["ascending", "descending"])
def test_sequences_of_every_type_order_whole_columns(
    data_type: str, direction: str, spark: SparkConnection, tmp_path: Path
) -> None:
    """All pairs of values that sort oddly, each way round, and null."""
    values: list[Any] = [*odd_values(data_type), None]
    options = {"sequence.field": "s", "sequence.field.sort-order": direction}
    table = TableCase((("k", "INT"), ("s", data_type), ("a", "INT")), ("k",), options)
    site = Site(spark, tmp_path, compile_plan(schema_of(table)))
    pairs = [(one, other) for one in values for other in values]
    for turn in range(2):
        site.merge_here(
            [[Change("+I", {"k": key, "s": pair[turn], "a": turn}) for key, pair in enumerate(pairs)]],
        )
    before = repr(sorted(site.rows().items()))
    site.combine_here(0, 2)
    assert repr(sorted(site.rows().items())) == before
    assert len(site.runs) == 1


def odd_values(data_type: str) -> list[Any]:
    found = next((values for name, values in VALUES.items() if name == data_type), None)
    odd: dict[str, list[Any]] = {
        "FLOAT": [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1.5, -1.5],
        "DOUBLE": [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-300, -1e-300],
        "STRING": ["", "a", "B", "é", "z", "\ufffd", "\U0001f600", "a\0"],
        "BOOLEAN": [False, True],
        "TINYINT": [-128, -1, 0, 1, 127],
        "BIGINT": [-(2**63), -1, 0, 2**63 - 1],
        "DECIMAL(38, 10)": [Decimal("-1.5").quantize(Decimal("1e-10")), Decimal(0).quantize(Decimal("1e-10"))],
    }
    return odd.get(data_type) or list(found or [])


def test_rows_that_columns_cannot_tell_of_are_combined_one_by_one_if_they_are_few(
    spark: SparkConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"merge-engine": "aggregation", "fields.t.aggregate-function": "sum"}
    site = Site(spark, tmp_path, compile_plan(schema_of(TableCase((("k", "INT"), ("t", "TINYINT")), ("k",), options))))
    for turn in range(3):
        site.merge_here([[Change("+I", {"k": key, "t": 100 if key < 3 else turn}) for key in range(10)]])
    before = list(site.runs)
    monkeypatch.setattr(combined_runs, "MOST_FOLDED_VALUES", 2 * len(site.plan.state_columns))
    with pytest.raises(LeftToSpark):
        site.combine_here(0, 3)
    site.runs = before
    monkeypatch.setattr(combined_runs, "MOST_FOLDED_VALUES", 6 * len(site.plan.state_columns))
    by_spark, here = both(site, 0, 3)
    assert_same(by_spark, here)
    carried = here[site.plan.totals[0].carry].to_pylist()
    assert sorted(value for value in carried if value is not None) == [300, 300, 300]


def test_rows_of_many_forms_are_left_to_spark(
    spark: SparkConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = (("k", "INT"), ("s", "INT"), ("a", "INT"))
    table = TableCase(columns, ("k",), {"sequence.field": "s"})
    site = Site(spark, tmp_path, compile_plan(schema_of(table)))
    for turn in range(2):
        site.merge_here([[Change("+I", {"k": k, "s": k if turn else 2, "a": turn}) for k in range(4)]])
    monkeypatch.setattr(combined_columns, "MOST_FORMS", 1)
    with pytest.raises(LeftToSpark):
        site.combine_here(0, 2)
