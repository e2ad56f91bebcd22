"""What a worker writes of whole columns is what Spark's aggregation of the same records writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from app.core.plan.merge_plan import compile_plan
from app.core.types.kinds import Kind
from app.storage import lifted_runs
from app.storage.folded_runs import write_folded_runs
from app.storage.run_files import LeftToSpark
from spark_jobs.session import SparkConnection
from tests.builders import schema_of
from tests.histories import ENGINES, cut, examples, random_history, random_table
from tests.oracle import Change, TableCase
from tests.spark_jobs.site import Site
from tests.spark_jobs.test_agreement import expected_rows, shown, visible
from tests.spark_jobs.test_folded_runs import assert_same, stored
from tests.spark_jobs.test_lifted_runs import with_distinct_keys
from tests.spark_jobs.test_types import VALUES


def both(site: Site, batches: Sequence[Sequence[Change]]) -> None:
    """Merges of the same staged batches, on Spark and here; the latter's run stays. Raises ``LeftToSpark``."""
    staged = [site.stage(changes) for changes in batches]
    site.merge_lifted_here(staged)
    here = site.runs.pop()
    site.merge_staged(staged)
    by_spark = site.runs.pop()
    site.runs.append(here)
    assert (here.rows, here.live_rows) == (by_spark.rows, by_spark.live_rows)
    if here.files:
        assert_same(stored(site, by_spark), stored(site, here))


@pytest.mark.parametrize("distinct", [True, False])
@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.filter_too_much])
@given(seed=st.integers(0, 2**32))
def test_columns_that_are_taken_whole_are_what_spark_folds(
    engine: str, distinct: bool, spark: SparkConnection, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, retracts = random_table(random, engine)
    note(str(table))
    plan = compile_plan(schema_of(table))
    assume(plan.replay is None and plan.lifts)  # left to Spark
    plan = replace(plan, row=replace(plan.row, retained=random.choice((None, timedelta(days=1)))))
    site = Site(spark, tmp_path_factory.mktemp("warehouse"), plan)
    history = random_history(random, table, retracts, 60)
    pieces = list(with_distinct_keys(table, history))[:3] if distinct else [history[one] for one in cut(random, 60, 2)]
    try:
        for piece in pieces:
            both(site, [piece[batch] for batch in cut(random, len(piece), 2)])
    except LeftToSpark:
        assume(condition=False)
    expected = visible(expected_rows(table, [change for piece in pieces for change in piece]))
    assert shown(table, site) == expected
    site.compact(0, len(site.runs))
    assert shown(table, site) == expected, "after a compaction"


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.filter_too_much])
@given(seed=st.integers(0, 2**32))
def test_columns_that_are_taken_whole_are_what_records_come_to_one_by_one(
    engine: str, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Without Spark, so that it is many tables."""
    random = Random(seed)
    table, retracts = random_table(random, engine, times=2)
    note(str(table))
    plan = compile_plan(schema_of(table))
    assume(plan.replay is None and plan.lifts)
    site = Site(None, tmp_path_factory.mktemp("warehouse"), plan)  # type: ignore[arg-type]  # nothing asks for it
    history = random_history(random, table, retracts, 60)
    pieces = [*with_distinct_keys(table, history), history]
    lifted = 0
    for piece in pieces:
        staged = [site.stage(piece[batch]) for batch in cut(random, len(piece), 2)]
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(lifted_runs, "PART_BYTES", random.choice((1, 2**8, 2**10, 2**24)))
                patch.setattr(lifted_runs, "MOST_FOLDED_VALUES", random.choice((0, 100_000)))
                site.merge_lifted_here(staged)
        except LeftToSpark:
            continue
        site.merge_staged_here(staged)
        folded, here = site.runs.pop(), site.runs.pop()
        assert (here.rows, here.live_rows) == (folded.rows, folded.live_rows)
        if here.files:
            lifted += 1
            assert repr(stored(site, here).to_pylist()) == repr(stored(site, folded).to_pylist())
    assume(lifted)


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.filter_too_much])
@given(seed=st.integers(0, 2**32))
def test_each_partition_has_the_state_rows_of_its_records(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    random = Random(seed)
    table, retracts = random_table(random, random.choice([*ENGINES]))
    note(str(table))
    keys = random.choice([("j",), ("k",), ("k", "j")])
    assume(set(keys) <= set(table.primary_key))
    plan = compile_plan(replace(schema_of(table), partition_keys=keys))
    assume(plan.replay is None and plan.lifts)
    site = Site(None, tmp_path_factory.mktemp("warehouse"), plan)  # type: ignore[arg-type]  # nothing asks for it
    staged = [site.stage(random_history(random, table, retracts, 30)) for _ in range(2)]
    batches = [site.batch(*one) for one in staged]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lifted_runs, "PART_BYTES", random.choice((1, 2**10, 2**24)))
        try:
            here = site.write_lifted("a" * 32, batches)
        except LeftToSpark:
            assume(condition=False)
    folded = write_folded_runs(site.warehouse, site.table_id, "b" * 32, plan, batches, site.now)
    assert len(here) == len({run.partition for run in here})
    rows = [{run.partition: repr(stored(site, run).to_pylist()) for run in runs} for runs in (here, folded)]
    assert rows[0] == rows[1]
    live = [{run.partition: run.live_rows for run in runs} for runs in (here, folded)]
    assert live[0] == live[1]


def test_every_type_is_written_as_spark_writes_it(spark: SparkConnection, tmp_path: Path) -> None:
    columns = (("k", "INT"), *((f"c{i}", data_type) for i, data_type in enumerate(VALUES)))
    for place, engine in enumerate(ENGINES):
        plan = compile_plan(schema_of(TableCase(columns, ("k",), {"merge-engine": engine})))
        assert {column.type.kind for column in plan.schema.columns} == set(Kind)
        rows: list[dict[str, Any]] = [
            {"k": n, **{f"c{i}": values[n] for i, values in enumerate(VALUES.values())}} for n in range(2)
        ]
        nothing: dict[str, Any] = {"k": 2, **{f"c{i}": None for i in range(len(VALUES))}}
        both(Site(spark, tmp_path / str(place), plan), [[Change("+I", row)] for row in (*rows, nothing)])


GROUPED = TableCase(
    (("k", "INT"), ("g", "INT"), ("h", "INT"), ("a", "STRING"), ("b", "INT"), ("n", "INT")),
    ("k",),
    {"merge-engine": "partial-update", "fields.g,h.sequence-group": "a,b,n", "fields.n.aggregate-function": "sum"},
)


@pytest.mark.parametrize("absent", ["null", "unchanged"])
def test_nulls_and_names_are_kept_apart(absent: str, spark: SparkConnection, tmp_path: Path) -> None:
    """Every combination of null, of a column that is named or not, and of the kinds that the table takes."""
    table = replace(GROUPED, options={**GROUPED.options, "record.absent-columns": absent})
    changes = []
    for number in range(256):
        told = {"g": 1, "h": 2, "a": "x", "b": 3, "n": 4}
        values = {name: value if number >> place & 1 else None for place, (name, value) in enumerate(told.items())}
        named = None if absent == "null" else frozenset(["k", *list(told)[number >> 5 :]])
        given = {name: value if named is None or name in named else None for name, value in values.items()}
        changes.append(Change(("+I", "+U")[number & 1], {"k": number, **given}, named))
    both(Site(spark, tmp_path, compile_plan(schema_of(table))), [changes[:100], changes[100:]])
