"""Replayed rows by columns: to the byte what a walk through each log comes to, also on top of what was settled."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.rules.replays.replay import LOG, Replay
from tests.builders import schema_of
from tests.histories import cut, examples, random_history, random_table
from tests.kernel.expected import expected_rows, shown, visible
from tests.kernel.test_columns_and_rows import combined_rows, folded_rows, same
from tests.oracle import Change, TableCase
from tests.site import Site

REMOVED = {
    "merge-engine": "aggregation",
    "sequence.field": "g",
    "aggregation.remove-record-on-delete": "true",
    "fields.n.aggregate-function": "sum",
}


def is_replayed(plan: MergePlan) -> bool:
    return any(isinstance(rule, Replay) for rule in plan.rules)


def replayed_table(random: Random, engine: str) -> tuple[TableCase, bool]:
    while True:
        table, retracts = random_table(random, engine)
        if is_replayed(compile_plan(schema_of(table))):
            return table, retracts and random.random() < 0.8


@pytest.mark.parametrize("engine", ["partial-update", "aggregation"])
@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**32))
def test_logs_are_replayed_by_columns_as_row_by_row(
    engine: str, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, retracts = replayed_table(random, engine)
    note(str(table))
    site = Site(tmp_path_factory.mktemp("warehouse"), compile_plan(schema_of(table)))
    history = random_history(random, table, retracts, random.choice((30, 90)))
    for piece in cut(random, len(history), 5):
        before, first = len(site.runs), len(site.batches) + 1
        expected = folded_rows(site, [history[piece]], first)
        site.merge([history[piece]])
        same(site.runs[-1] if len(site.runs) > before else None, site, expected)
        if site.runs and random.random() < 0.5:
            oldest = random.choice((0, 0, random.randrange(len(site.runs))))
            expected = combined_rows(site, site.runs[oldest:], oldest=oldest == 0)
            site.compact(oldest, len(site.runs))
            same(site.runs[oldest] if len(site.runs) > oldest else None, site, expected)
        assert shown(table, site) == visible(expected_rows(table, history[: piece.stop]))


def test_a_log_loses_what_its_last_delete_removed_for_good(tmp_path: Path) -> None:
    table = TableCase((("k", "INT"), ("g", "INT"), ("n", "INT")), ("k",), REMOVED)
    site = Site(tmp_path, compile_plan(schema_of(table)))

    def change(kind: str, g: int, n: int | None = 1) -> Change:
        return Change(kind, {"k": 1, "g": g, "n": n})

    site.merge([[*(change("+I", g) for g in range(50)), change("-D", 40, None)]])
    [state] = site.states(site.runs[0])
    assert [entry["c1"] for entry in state[LOG]] == [*range(41, 50), 40]
    site.merge([[change("-D", 45, None), change("+I", 44)]])
    site.compact(0, 2)
    [state] = site.states(site.runs[0])
    assert [entry["c1"] for entry in state[LOG]] == [46, 47, 48, 49, 45]
    assert site.rows() == {(1,): {"k": 1, "g": 49, "n": 4}}
