"""The effect of a record on a row, lane by lane: one cell per sequence group, for the pages with a row's history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from app.core.plan.explaining.explained_fold import ColumnStep
from app.core.plan.explaining.story_lanes import StoryLane


class Mark(StrEnum):
    """The effect of a record in one lane; each has a shape and a word, not only a colour."""

    CHANGED = "changed"
    LATE_COUNTED = "late, but counted"
    LATE = "late, no change"
    IGNORED = "ignored"
    SAME = "no change"


@dataclass(frozen=True)
class Effect:
    """The columns with one reason: those that the record changed, and the names of those that stayed."""

    reason: str
    changed: Sequence[ColumnStep]
    stay: Sequence[str]


@dataclass(frozen=True)
class Cell:
    """The effect of a record on the columns of one lane."""

    lane: StoryLane
    mark: Mark
    effects: Sequence[Effect]


def cells(lanes: Iterable[StoryLane], columns: Sequence[ColumnStep]) -> list[Cell]:
    """Return a cell for each lane with the effect of a record on its columns."""
    by_name = {column.column: column for column in columns}
    return [_cell(lane, [by_name[name] for name in lane.columns if name in by_name]) for lane in lanes]


def _cell(lane: StoryLane, columns: Sequence[ColumnStep]) -> Cell:
    by_reason: dict[str, list[ColumnStep]] = {}
    for column in columns:
        by_reason.setdefault(column.reason, []).append(column)
    effects = [
        Effect(
            reason, [step for step in steps if is_change(step)], [step.column for step in steps if not is_change(step)]
        )
        for reason, steps in by_reason.items()
    ]
    return Cell(lane, _mark(columns), sorted(effects, key=lambda effect: not effect.changed))


def is_change(step: ColumnStep) -> bool:
    """Return whether the column has another value after it; true is not 1."""
    return repr(step.before) != repr(step.after)


def _mark(columns: Sequence[ColumnStep]) -> Mark:
    changed = any(is_change(column) for column in columns)
    if any(column.late for column in columns):
        return Mark.LATE_COUNTED if changed else Mark.LATE
    if changed:
        return Mark.CHANGED
    return Mark.IGNORED if any(column.ignored for column in columns) else Mark.SAME
