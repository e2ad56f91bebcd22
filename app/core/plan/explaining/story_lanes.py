"""Lanes: the columns that one order rules, each lane by itself. A story of a row follows its lanes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.core.plan.explaining.explanations import order_words
from app.core.plan.merging.merge_plan import MergePlan
from app.core.rules.order import Order

_TIES: Final = ", then arrival"  # of every order: it decides among ties


@dataclass(frozen=True)
class StoryLane:
    """``group``: the columns of the sequence group, empty for the columns of none; ``words`` say what orders the
    records in it.
    """

    group: tuple[str, ...]
    columns: tuple[str, ...]
    words: str


def story_lanes(plan: MergePlan) -> list[StoryLane]:
    """Return a lane per sequence group, in declared order; the lane of columns without a group comes first."""
    columns: dict[tuple[str, ...], list[str]] = {}
    for column in plan.schema.value_columns:
        columns.setdefault(plan.rule_of[column.name].part.group, []).append(column.name)
    ordered = sorted(columns.items(), key=lambda item: bool(item[0]))
    return [StoryLane(group, tuple(names), _words(plan, group)) for group, names in ordered]


def _words(plan: MergePlan, group: tuple[str, ...]) -> str:
    register = plan.group_registers.get(group)
    order = plan.order if register is None else register.order
    return "by arrival" if order == Order() else f"by {order_words(order).removesuffix(_TIES)}"
