"""Plots over snapshots instead of time: one value for each snapshot, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from app.console.parts.plots import Line, Plot, Says


@dataclass(frozen=True)
class Course(Plot):
    """A plot whose points are numbered from 0; ``snapshots`` has the number of each one's snapshot."""

    snapshots: Sequence[int] = ()

    @cached_property
    def span(self) -> float:
        """The width of the plot, in snapshots; at least 1."""
        return max(1.0, len(self.snapshots) - 1.0)

    @property
    def times(self) -> list[str]:
        """The labels of the first and the last snapshot."""
        if not self.snapshots:
            return []
        return [f"snapshot {number}" for number in dict.fromkeys((self.snapshots[0], self.snapshots[-1]))]

    @property
    def summary(self) -> str:
        """The plot in words."""
        lines = (
            f"{line.name}: now {self.in_words(line.last)}, at most {self.in_words(_most(line))}" for line in self.lines
        )
        return f"{self.title}, {self.meaning}, of {len(self.snapshots)} snapshots. {'; '.join(lines)}"


def course(
    title: str, meaning: str, says: Says, colour: str, snapshots: Sequence[int], values: Sequence[float | None]
) -> Course:
    """Return a course of one line."""
    points = [(float(number), value) for number, value in enumerate(values)]
    return Course(title, meaning, says, [Line("now", colour, points)], len(points) - 1.0, snapshots=snapshots)


def _most(line: Line) -> float | None:
    return max(line.known, default=None)
