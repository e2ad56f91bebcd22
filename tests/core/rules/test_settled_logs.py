"""Logs settle: what a compaction into the oldest run leaves of them, and that a state shows what it was folded to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from app.core.plan.merging.evolution import converted
from app.core.plan.merging.fold import combine_all, compacted, finish, fold
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.rules.replays.replay import BASE, LOG
from app.core.table.records import KINDS_BY_TEXT, Record
from app.core.types.kinds import Kind
from tests.services.builders import schema

COLUMNS = (("id", "INT"), ("g", "INT"), ("n", "INT"), ("t", "STRING"), ("h", "INT"), ("m", "INT"))
GROUPS = {
    "merge-engine": "partial-update",
    "fields.g.sequence-group": "n,t",
    "fields.n.aggregate-function": "sum",
    "fields.t.aggregate-function": "listagg",
    "fields.t.ignore-retract": "true",
    "fields.h.sequence-group": "m",
    "partial-update.remove-record-on-sequence-group": "g",
}
BY_SEQUENCE = {
    "merge-engine": "aggregation",
    "sequence.field": "g",
    "fields.n.aggregate-function": "sum",
    "aggregation.remove-record-on-delete": "true",
}
LISTED = {"merge-engine": "aggregation", "sequence.field": "g", "fields.t.aggregate-function": "listagg"}


def plan_of(options: Mapping[str, str], wide: str = "INT") -> MergePlan:
    columns = [(name, wide if name == "n" else kind) for name, kind in COLUMNS]
    return compile_plan(schema(*columns, options=options))


def record(arrival: int, kind: str = "+I", **values: Any) -> Record:
    return Record(KINDS_BY_TEXT[kind], {name: values.get(name) for name, _ in COLUMNS} | {"id": 1}, arrival)


def state_of(plan: MergePlan, *records: Record) -> Mapping[str, Any]:
    state = fold(plan, records)
    assert state is not None
    return state


def settled(plan: MergePlan, state: Mapping[str, Any]) -> Mapping[str, Any]:
    kept = compacted(plan, state, 0, oldest=True)
    assert kept is not None
    return kept


HISTORY = [
    record(0, g=5, n=1, t="old", h=1, m=1),
    record(1, "-D", g=5, h=3),
    record(2, g=8, n=10, t="eight", h=2, m=2),
    record(3, g=6, n=20, t="six"),
]


def test_the_oldest_run_holds_what_its_log_came_to_instead_of_the_log() -> None:
    plan = plan_of(GROUPS)
    kept = settled(plan, state_of(plan, *HISTORY))
    assert kept[LOG] == []
    assert finish(plan, kept) == {"id": 1, "g": 8, "n": 30, "t": "six,eight", "h": 2, "m": 2}


def test_a_settled_row_grows_with_what_it_holds_and_not_with_its_history() -> None:
    plan = plan_of(
        {key: text for key, text in GROUPS.items() if not key.startswith("fields.t.")}
        | {"fields.g.sequence-group": "n"}
    )
    sizes = []
    for length in (10, 1000):
        history = [record(i, "-U" if i % 7 == 3 else "+I", g=i % 50, n=1, t="x", h=i, m=i) for i in range(length)]
        kept = settled(plan, state_of(plan, *history))
        sizes.append(len(repr({name: value if value is None else type(value) for name, value in kept[BASE].items()})))
        assert kept[LOG] == []
    assert sizes[0] == sizes[1]


TWO_GROUPS = {key: text for key, text in GROUPS.items() if not key.endswith("record-on-sequence-group")} | {
    "partial-update.remove-record-on-sequence-group": "g,h"
}


def test_a_group_that_did_not_accept_a_removal_begins_again_with_it() -> None:
    """The first -D is h's past and g's future: after it h has no sequence, so that it accepts the second one."""
    plan = plan_of(TWO_GROUPS)
    before = [record(0, g=2, h=9, n=1), record(1, "-D", g=3, h=1)]
    after = [record(2, "-D", g=0, h=0), record(3, g=1, n=5)]
    whole = finish(plan, state_of(plan, *before, *after))
    assert whole["n"] == 5
    for below in (state_of(plan, *before), settled(plan, state_of(plan, *before))):
        assert finish(plan, combine_all(plan, [below, state_of(plan, *after)]) or {}) == whole


def test_what_late_records_may_still_come_before_keeps_its_log() -> None:
    plan = plan_of(BY_SEQUENCE)
    state = state_of(plan, *(record(i, g=i, n=1) for i in range(5)))
    assert settled(plan, state) == state
    assert BASE not in state


@pytest.mark.parametrize("options", [GROUPS, BY_SEQUENCE, LISTED])
def test_a_state_shows_its_columns_without_its_log(options: dict[str, str]) -> None:
    """A lookup of a key that one run holds folds nothing: the log may be as long as it likes."""
    plan = plan_of(options)
    state = state_of(plan, *(record(i, g=9 - i, n=i, t=f"t{i}") for i in range(4)))
    logs = {hidden.name for hidden in plan.hidden if hidden.type.kind is Kind.ARRAY}
    assert logs
    assert finish(plan, {**state, **dict.fromkeys(logs)}) == finish(plan, state)


@pytest.mark.parametrize("options", [GROUPS, BY_SEQUENCE])
def test_a_total_that_left_its_column_fits_a_wider_one(options: dict[str, str]) -> None:
    narrow, wide = plan_of(options, "TINYINT"), plan_of(options, "INT")
    state = state_of(narrow, record(0, g=1, n=100), record(1, g=2, n=100))
    for kept in (state, settled(narrow, state)):
        assert finish(wide, converted(kept, narrow, wide))["n"] == 200


def test_a_run_from_before_logs_settled_is_read_as_it_is() -> None:
    plan = plan_of(GROUPS)
    old = {name: value for name, value in state_of(plan, *HISTORY).items() if name != BASE}
    both = combine_all(plan, [old, state_of(plan, record(9, g=7, n=100, t="seven"))])
    assert both is not None
    assert finish(plan, both) == {"id": 1, "g": 8, "n": 130, "t": "six,seven,eight", "h": 2, "m": 2}
    assert finish(plan, settled(plan, old)) == finish(plan, old)
