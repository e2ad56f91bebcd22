"""Commits on a line of time, as SVG made on the server: where each stands, and how high."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")
FIRST: Final = 2.0  # percent of the width: where the line begins
LAST: Final = 98.0
APART: Final = 1.7  # marks that are nearer to each other than that are moved apart
# Levels of names above the line: neighbours have different ones.
LEVELS: Final = 3


@dataclass(frozen=True)
class Mark(Generic[Item]):
    """One item: how far to the right in percent of the width, and how high, from 0 to 1; ``level`` counts the marks."""

    item: Item
    across: float
    height: float
    level: int


@dataclass(frozen=True)
class Timeline(Generic[Item]):
    """Marks from the oldest to the newest, and the times of both ends; both None of no marks."""

    marks: Sequence[Mark[Item]]
    begin: datetime | None
    end: datetime | None


def timeline_of(items: Sequence[Item], at: Callable[[Item], datetime], weight: Callable[[Item], int]) -> Timeline[Item]:
    """Return the line of ``items``, the oldest first; the one of the most ``weight`` is the highest."""
    if not items:
        return Timeline([], None, None)
    times = [at(item) for item in items]
    most = max(1, *(weight(item) for item in items), 1)
    places = _apart(_placed(times))
    marks = [
        Mark(one, round(place, 2), weight(one) / most, number % LEVELS)
        for number, (one, place) in enumerate(zip(items, places, strict=True))
    ]
    return Timeline(marks, times[0], times[-1])


def _placed(times: Sequence[datetime]) -> list[float]:
    span = (times[-1] - times[0]).total_seconds()
    if span <= 0:
        return [(FIRST + LAST) / 2 if len(times) == 1 else FIRST for _ in times]
    return [FIRST + (LAST - FIRST) * (time - times[0]).total_seconds() / span for time in times]


def _apart(places: Sequence[float]) -> list[float]:
    """Return the places, moved to the right if they are too close together, and back to the left at the end of the
    line, in the same order.
    """
    apart = min(APART, (LAST - FIRST) / max(1, len(places) - 1))
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + apart if moved else FIRST))
    limit = LAST
    for number in reversed(range(len(moved))):
        moved[number] = min(moved[number], limit)
        limit = moved[number] - apart
    return moved
