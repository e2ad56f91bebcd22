"""A merge of keys that come once takes each record by itself, and writes what the aggregation of records writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from app.core.plan.merge_plan import compile_plan
from app.core.types.kinds import Kind
from spark_jobs.session import SparkConnection
from tests.builders import schema_of
from tests.histories import ENGINES, KEYS, cut, random_history, random_table
from tests.oracle import Change, TableCase
from tests.spark_jobs.site import Site
from tests.spark_jobs.test_agreement import expected_rows, shown, visible
from tests.spark_jobs.test_folded_runs import assert_same, stored
from tests.spark_jobs.test_types import VALUES

SKETCHED = {"merge-engine": "aggregation", "fields.a.aggregate-function": "hll_sketch"}


def both(site: Site, batches: Sequence[Sequence[Change]], *, keeps_input: bool = False) -> list[str]:
    """Merges of the same staged batches, with an aggregation and without; the latter's run stays. The ids of both."""
    staged = [site.stage(changes) for changes in batches]
    ids = [site.merge_staged(staged, keeps_input=keeps_input, distinct_keys=distinct) for distinct in (False, True)]
    lifted, folded = site.runs.pop(), site.runs.pop()
    site.runs.append(lifted)
    assert (lifted.rows, lifted.live_rows) == (folded.rows, folded.live_rows)
    assert len(lifted.files) == len(folded.files)
    for one, other in zip(lifted.files, folded.files, strict=True):
        assert_same(of_file(site, folded, other), of_file(site, lifted, one))
    return ids


def of_file(site: Site, run: Any, file: Any) -> pa.Table:
    return stored(site, replace(run, files=(file,)))


def with_distinct_keys(table: TableCase, history: Sequence[Change]) -> Iterator[list[Change]]:
    """The history in pieces, in none of which a key comes twice."""
    piece: dict[Any, Change] = {}
    for change in history:
        key = tuple(change.values[name] for name in table.primary_key)
        if key in piece:
            yield list(piece.values())
            piece = {}
        piece[key] = change
    yield list(piece.values())


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=6)
@given(seed=st.integers(0, 2**32))
def test_records_taken_by_themselves_are_what_an_aggregation_makes_of_them(
    engine: str, spark: SparkConnection, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, retracts = random_table(random, engine)
    note(str(table))
    plan = compile_plan(schema_of(table))
    plan = replace(plan, row=replace(plan.row, retained=random.choice((None, timedelta(days=1)))))
    site = Site(spark, tmp_path_factory.mktemp("warehouse"), plan)
    site.target_file_bytes = random.choice((KEYS // 4, 1024**2))
    pieces = list(with_distinct_keys(table, random_history(random, table, retracts, 30)))[:2]
    for piece in pieces:
        both(site, [piece[batch] for batch in cut(random, len(piece), 2)])
    expected = visible(expected_rows(table, [change for piece in pieces for change in piece]))
    assert shown(table, site) == expected
    site.compact(0, len(site.runs))
    assert shown(table, site) == expected, "after a compaction"


def test_every_type_is_stored_as_an_aggregation_stores_it(spark: SparkConnection, tmp_path: Path) -> None:
    columns = (("k", "INT"), *((f"c{i}", data_type) for i, data_type in enumerate(VALUES)))
    plan = compile_plan(schema_of(TableCase(columns, ("k",))))
    assert {column.type.kind for column in plan.schema.columns} == set(Kind)
    rows: list[dict[str, Any]] = [
        {"k": n, **{f"c{i}": values[n] for i, values in enumerate(VALUES.values())}} for n in range(2)
    ]
    nothing: dict[str, Any] = {"k": 2, **{f"c{i}": None for i in range(len(VALUES))}}
    both(Site(spark, tmp_path, plan), [[Change("+I", row) for row in (*rows, nothing)]])


def test_keys_may_be_all_that_there_is(spark: SparkConnection, tmp_path: Path) -> None:
    for place, options in enumerate(({}, {"merge-engine": "first-row"})):
        table = TableCase((("k", "INT"), ("o", "STRING")), ("k", "o"), options)
        site = Site(spark, tmp_path / str(place), compile_plan(schema_of(table)))
        for keys in ((1, 2), (2, 3)):
            both(site, [[Change("+I", {"k": key, "o": "a"}) for key in keys]])
        site.compact(0, 2)
        assert set(visible(site.rows())) == {(key, "a") for key in (1, 2, 3)}


def test_the_changelog_of_the_input_is_the_same(spark: SparkConnection, tmp_path: Path) -> None:
    table = TableCase((("k", "INT"), ("a", "INT")), ("k",), {"changelog-producer": "input"})
    site = Site(spark, tmp_path, compile_plan(schema_of(table)))
    changes = [Change("+I", {"k": 1, "a": 1}), Change("-D", {"k": 2, "a": 2}), Change("-U", {"k": 3, "a": 3})]
    folded, lifted = both(site, [changes], keeps_input=True)
    assert site.changelog(lifted) == site.changelog(folded)
    assert len(site.changelog(lifted)) == len(changes)


def test_a_plan_whose_fold_writes_values_anew_is_folded_all_the_same() -> None:
    columns = (("k", "INT"), ("a", "BYTES"))
    for function, lifts in {"hll_sketch": True, "rbm32": False, "rbm64": False}.items():
        options = {**SKETCHED, "fields.a.aggregate-function": function}
        assert compile_plan(schema_of(TableCase(columns, ("k",), options))).lifts is lifts
