"""Tasks leave out what came too late, and settle what nothing can come before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from app.core.plan.merging.merge_plan import compile_plan
from app.files.layout import data_file
from tests import oracle
from tests.builders import schema_of
from tests.histories import cut, examples, random_history, random_table
from tests.kernel.expected import expected_rows, shown, visible
from tests.site import Site

COLUMNS = (("k", "INT"), ("g", "BIGINT"), ("n", "INT"), ("t", "STRING"))
LISTED = {
    "merge-engine": "aggregation",
    "sequence.field": "g",
    "fields.t.aggregate-function": "listagg",
    "fields.n.aggregate-function": "sum",
    "sequence.late-horizon": "100",
}
REMOVED = {**LISTED, "aggregation.remove-record-on-delete": "true"}


def on_one_key(table: oracle.TableCase, changes: list[oracle.Change]) -> list[oracle.Change]:
    key = {name: value for name, value in {"k": 1, "j": "x"}.items() if name in table.primary_key}
    return [oracle.Change(change.kind, {**change.values, **key}) for change in changes]


@settings(max_examples=examples(25))
@given(seed=st.integers(0, 2**32))
def test_records_that_came_too_late_are_left_out_in_any_cut(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, retracts = oracle.TableCase((), ()), False
    while not table.columns or not any(getattr(rule, "late", None) for rule in compile_plan(schema_of(table)).rules):
        table, retracts = random_table(random, random.choice(("partial-update", "aggregation")), times=2)
    history = on_one_key(table, random_history(random, table, retracts, 30))
    note(f"{table}")
    site = Site(tmp_path_factory.mktemp("warehouse"), compile_plan(schema_of(table)))
    for number, piece in enumerate(cut(random, len(history), 4)):
        site.merge([history[piece]])
        assert shown(table, site) == visible(expected_rows(table, history[: piece.stop])), "after a merge"
        if number and random.random() < 0.7:
            site.compact(0, len(site.runs))
            assert shown(table, site) == visible(expected_rows(table, history[: piece.stop])), "after a compaction"


def log_of(site: Site) -> list[Mapping[str, Any]]:
    [run] = site.runs
    [file] = run.files
    table = pq.read_table(site.warehouse.path(*data_file(site.table_id, run.id, file.name)))
    [name] = [name for name in table.column_names if name.startswith("_kf_log")]
    log: list[Mapping[str, Any]] = table.column(name).to_pylist()[0]
    return log


@pytest.mark.parametrize("options", [LISTED, REMOVED])
def test_a_compaction_leaves_the_horizon_of_a_long_log(options: dict[str, str], tmp_path: Path) -> None:
    """Long enough to be walked in several pieces; one in three records is late, and some too late."""
    random, table = Random(7), oracle.TableCase(COLUMNS, ("k",), options)
    site = Site(tmp_path, compile_plan(schema_of(table)))
    history = [
        oracle.Change("+I", {"k": 1, "g": at - random.choice((0, 0, random.randint(0, 150))), "n": 1, "t": str(at)})
        for at in range(1200)
    ]
    site.merge([history[:900]])
    assert shown(table, site) == expected_rows(table, history[:900])
    site.merge([history[900:]])
    site.compact(0, 2)
    assert shown(table, site) == expected_rows(table, history)
    assert len(log_of(site)) < 150
