"""Totals of rows that are replayed from a log: outside their column they are kept beside the row (A.7)."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest

from app.core.errors import Conflict
from app.core.plan.merging.fold import combine, finish, fold, lift
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.rules.replays.replay import Replay
from app.core.table.records import KINDS_BY_TEXT, Record
from tests.services.builders import schema

GROUP = {
    "merge-engine": "partial-update",
    "fields.g.sequence-group": "n",
    "fields.n.aggregate-function": "sum",
    "partial-update.remove-record-on-sequence-group": "g",
}
SEQUENCE = {
    "merge-engine": "aggregation",
    "fields.n.aggregate-function": "sum",
    "sequence.field": "g",
    "aggregation.remove-record-on-delete": "true",
}
PRODUCT = {**SEQUENCE, "fields.n.aggregate-function": "product"}


def plan_of(options: Mapping[str, str], kind: str = "TINYINT") -> MergePlan:
    plan = compile_plan(schema(("id", "INT"), ("g", "INT"), ("n", kind), options=options))
    assert isinstance(plan.rules[0], Replay)
    return plan


def records(*changes: tuple[str, int, Any]) -> list[Record]:
    """Records (kind, sequence, number) of one key, in arrival order."""
    return [Record(KINDS_BY_TEXT[kind], {"id": 1, "g": g, "n": n}, i) for i, (kind, g, n) in enumerate(changes)]


@pytest.mark.parametrize("options", [GROUP, SEQUENCE, PRODUCT])
def test_the_totals_of_replayed_rows_are_bounded_but_do_not_add_up(options: dict[str, str]) -> None:
    plan = plan_of(options)
    [bounds] = plan.totals
    assert (bounds.column.name, bounds.low, bounds.high, bounds.additive) == ("n", -128, 127, False)
    base = ["_kf_base"] if options is GROUP else []  # what orders by arrival settles
    assert [hidden.name for hidden in plan.hidden] == ["_kf_live", "_kf_log", bounds.carry, *base]


def test_replayed_rows_that_accumulate_nothing_keep_no_totals() -> None:
    plan = plan_of({key: text for key, text in GROUP.items() if not key.endswith("function")})
    assert [hidden.name for hidden in plan.hidden] == ["_kf_live", "_kf_log", "_kf_base"]
    assert plan.totals == ()


@pytest.mark.parametrize("options", [GROUP, SEQUENCE])
def test_a_total_outside_its_column_is_carried_until_a_record_brings_it_back(options: dict[str, str]) -> None:
    plan = plan_of(options)
    [carry] = [bounds.carry for bounds in plan.totals]
    state = fold(plan, records(("+I", 1, 100), ("+I", 2, 50)))
    assert state[carry] == 150
    with pytest.raises(Conflict, match="out of range for TINYINT"):
        finish(plan, state)
    back = combine(plan, state, lift(plan, Record(KINDS_BY_TEXT["+I"], {"id": 1, "g": 3, "n": -30}, 9)))
    assert back[carry] is None
    assert finish(plan, back) == {"id": 1, "g": 3, "n": 120}


@pytest.mark.parametrize("options", [GROUP, SEQUENCE])
def test_a_removal_takes_the_total_with_it(options: dict[str, str]) -> None:
    plan = plan_of(options)
    [carry] = [bounds.carry for bounds in plan.totals]
    state = fold(plan, records(("+I", 1, 100), ("+I", 2, 50), ("-D", 3, None), ("+I", 4, 7)))
    assert (state[carry], finish(plan, state)) == (None, {"id": 1, "g": 4, "n": 7})


@pytest.mark.parametrize(
    ("kind", "changes", "carried"),
    [
        ("TINYINT", [("+I", 1, 64), ("+I", 2, 2)], Decimal(128)),
        ("TINYINT", [("+I", 1, 64), ("+I", 2, -2)], None),
        ("DECIMAL(5, 2)", [("+I", 1, Decimal("1.00")), ("-U", 2, Decimal("3.00"))], Decimal("9" * 36 + ".99")),
    ],
)
def test_a_product_outside_its_column_or_without_end_is_carried(
    kind: str, changes: list[tuple[str, int, Any]], carried: Decimal | None
) -> None:
    plan = plan_of(PRODUCT, kind)
    state = fold(plan, records(*changes))
    assert state[plan.totals[0].carry] == carried
