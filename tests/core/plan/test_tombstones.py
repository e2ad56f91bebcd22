"""How long a deleted row is remembered (docs/semantics.md, Q2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from app.core.plan.merging.evolution import same_fold
from app.core.plan.merging.fold import combine, compacted, fold, lift
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.rules.row import TOUCHED_COLUMN
from app.core.table.records import KINDS_BY_TEXT, Record
from tests.services.builders import schema

RETAINED = {"tombstone.time-retained": "100 s"}
SEQUENCE = {"sequence.field": "g"}
REMOVED = {
    "merge-engine": "partial-update",
    "fields.g.sequence-group": "n",
    "partial-update.remove-record-on-sequence-group": "g",
}
SUMMED = {
    "merge-engine": "aggregation",
    "fields.n.aggregate-function": "sum",
    "aggregation.remove-record-on-delete": "true",
}
WITH_DEAD_ROWS = [SEQUENCE, REMOVED, SUMMED, {**SUMMED, **SEQUENCE}]
WITHOUT = [{}, {"merge-engine": "first-row"}, {**SEQUENCE, "ignore-delete": "true"}]


def plan_of(options: Mapping[str, str]) -> MergePlan:
    return compile_plan(schema(("id", "INT"), ("g", "INT"), ("n", "INT"), options=options))


def record(kind: str, g: int, n: int | None = None) -> Record:
    return Record(KINDS_BY_TEXT[kind], {"id": 1, "g": g, "n": n}, g)


def dead(plan: MergePlan, touched: int | None) -> Mapping[str, Any]:
    state = fold(plan, [record("+I", 1, 5), record("-D", 2)], touched)
    assert state is not None
    return state


def unlogged(state: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """A state row without its log and what stands for one: a compaction may put the one for the other."""
    return state if state is None else {name: v for name, v in state.items() if name not in ("_kf_log", "_kf_base")}


@pytest.mark.parametrize("options", WITH_DEAD_ROWS)
def test_a_dead_row_is_kept_until_its_last_record_is_old_enough(options: dict[str, str]) -> None:
    plan = plan_of(options | RETAINED)
    state = dead(plan, 1000)
    assert unlogged(compacted(plan, state, 1099, oldest=True)) == unlogged(state)
    assert compacted(plan, state, 1100, oldest=True) is None
    assert compacted(plan, state, 9999, oldest=False) == state, "an older run may hold what it hides"


@pytest.mark.parametrize("options", WITH_DEAD_ROWS)
def test_a_live_row_is_never_forgotten(options: dict[str, str]) -> None:
    plan = plan_of(options | RETAINED)
    state = lift(plan, record("+I", 1, 5), 1000)
    assert unlogged(compacted(plan, state, 10**9, oldest=True)) == unlogged(state)


@pytest.mark.parametrize("options", WITH_DEAD_ROWS)
def test_without_the_option_dead_rows_stay_for_ever_and_nothing_is_stored(options: dict[str, str]) -> None:
    plan = plan_of(options)
    state = dead(plan, 1000)
    assert TOUCHED_COLUMN not in state
    assert unlogged(compacted(plan, state, 10**9, oldest=True)) == unlogged(state)


@pytest.mark.parametrize("options", WITH_DEAD_ROWS)
def test_the_later_of_two_times_counts_and_an_unknown_one_ages_from_the_compaction(options: dict[str, str]) -> None:
    plan = plan_of(options | RETAINED)
    older, newer = dead(plan, 1000), lift(plan, record("-D", 3), 1050)
    assert combine(plan, older, newer)[TOUCHED_COLUMN] == 1050
    for unknown in (combine(plan, dead(plan, None), newer), combine(plan, older, lift(plan, record("-D", 3)))):
        kept = compacted(plan, unknown, 5000, oldest=True)
        assert kept[TOUCHED_COLUMN] == 5000
        assert compacted(plan, kept, 5100, oldest=True) is None


@pytest.mark.parametrize("options", WITHOUT)
def test_tables_whose_dead_rows_can_go_at_once_or_never_come_store_no_time(options: dict[str, str]) -> None:
    plan = plan_of(options | RETAINED)
    assert plan.hidden == plan_of(options).hidden
    assert plan.row.retained is None


@pytest.mark.parametrize("options", WITH_DEAD_ROWS)
@pytest.mark.parametrize("after", [RETAINED, {"tombstone.time-retained": "2 h"}, {}])
def test_the_time_is_no_part_of_the_meaning(options: dict[str, str], after: dict[str, str]) -> None:
    for before in ({}, {"tombstone.time-retained": "7 d"}):
        old, new = plan_of(options | before).schema, plan_of(options | after).schema
        assert same_fold(old, new)


def test_a_row_of_a_run_that_knew_no_time_is_combined_and_gets_one_by_the_next_compaction() -> None:
    plan = plan_of({**SUMMED, **SEQUENCE, **RETAINED})
    old = {name: value for name, value in lift(plan, record("+I", 1, 5)).items() if name != TOUCHED_COLUMN}
    both = combine(plan, old, lift(plan, record("+I", 2, 6), 1000))
    assert both[TOUCHED_COLUMN] is None
    kept = compacted(plan, old, 1100, oldest=True)
    assert kept[TOUCHED_COLUMN] == 1100
