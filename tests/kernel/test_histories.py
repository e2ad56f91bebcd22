"""The kernel means what the oracle means: random tables and histories, cut into merges and compactions at random."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.keys import token_of
from app.core.table.records import TOKEN_COLUMN
from app.files.layout import data_file
from tests import oracle
from tests.builders import schema_of
from tests.histories import ENGINES, cut, examples, random_history, random_table
from tests.kernel.expected import expected_rows, shown, visible
from tests.site import Site


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=examples(25))
@given(seed=st.integers(0, 2**32))
def test_any_cut_into_merges_and_compactions_comes_to_what_the_oracle_says(
    engine: str, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, retracts = random_table(random, engine, times=2)
    note(str(table))
    site = Site(tmp_path_factory.mktemp("warehouse"), compile_plan(schema_of(table)))
    history = random_history(random, table, retracts, 120)
    expected = visible(expected_rows(table, history))
    for piece in cut(random, len(history), 4):
        part = history[piece]
        site.merge([part[batch] for batch in cut(random, len(part), 3)])
    assert shown(table, site) == expected
    first = random.randrange(len(site.runs))
    site.compact(first, random.randint(first + 1, len(site.runs)))
    assert shown(table, site) == expected, "after a compaction of neighbouring runs"
    site.compact(0, len(site.runs))
    assert shown(table, site) == expected, "after a full compaction"


@pytest.mark.parametrize("engine", ENGINES)
def test_tokens_of_a_run_are_those_that_python_computes(engine: str, tmp_path: Path) -> None:
    table, retracts = random_table(Random(1), engine)
    site = Site(tmp_path, compile_plan(schema_of(table)))
    site.merge([random_history(Random(2), table, retracts, 50)])
    run = site.runs[0]
    for file in run.files:
        for row in pq.read_table(site.warehouse.path(*data_file(site.table_id, run.id, file.name))).to_pylist():
            key = tuple(row[name] for name in table.primary_key)
            assert token_of(site.plan.schema, key) == row[TOKEN_COLUMN]


ALTERED: list[tuple[dict[str, str], dict[str, str]]] = [
    ({"fields.a.aggregate-function": "sum"}, {"fields.a.aggregate-function": "max"}),
    ({"fields.b.aggregate-function": "listagg"}, {"fields.a.aggregate-function": "sum", "sequence.field": "b"}),
    ({"sequence.field": "b", "fields.a.aggregate-function": "first_value"}, {"fields.a.aggregate-function": "sum"}),
]


@pytest.mark.parametrize(("before", "after"), ALTERED)
def test_a_compaction_takes_the_rows_of_an_older_plan_as_first_records(
    before: dict[str, str], after: dict[str, str], tmp_path: Path
) -> None:
    columns = (("k", "INT"), ("a", "INT"), ("b", "STRING"))
    engine = {"merge-engine": "aggregation"}
    old, new = (oracle.TableCase(columns, ("k",), engine | options) for options in (before, after))
    site = Site(tmp_path, compile_plan(schema_of(old)))
    first, second = random_history(Random(1), old, False, 60), random_history(Random(2), new, False, 60)
    site.merge([first[:30]])
    site.merge([first[30:]])
    site.plan = compile_plan(schema_of(new))
    site.merge([second[:30]])
    site.merge([second[30:]])
    shown = visible(expected_rows(old, first))
    history = [*(oracle.Change("+I", row) for row in shown.values()), *second]
    site.compact(0, len(site.runs))
    assert visible(site.rows()) == visible(expected_rows(new, history))
