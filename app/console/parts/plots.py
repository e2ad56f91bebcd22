"""Plots of the last hour as SVG made on the server: they need no script, and can be read as tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Final

from app.console.parts.words import clock
from app.telemetry.hour import HOUR_SECONDS

# Width of the drawing; the page stretches it, and writes the numbers next to it.
WIDTH: Final = 600.0
HEIGHT: Final = 100.0
# Lengths of time on the axis, in seconds: their quarters are whole minutes.
SPANS: Final = (240.0, 1200.0, HOUR_SECONDS)
# Most moments of a plot whose values are shown under the mouse.
MOST_MOMENTS: Final = 40
_MOMENT_SECONDS: Final = 30.0
# Rows of a plot as a table: five minutes each.
ROWS: Final = 12
_NICE: Final = (1.0, 2.0, 5.0, 10.0)
Point = tuple[float, float | None]  # seconds since 1970, and what was then; None if it is unknown
Says = Callable[[float], str]


@dataclass(frozen=True)
class Scale:
    """The lowest, middle and highest number of a plot; ``share`` returns the height of a number."""

    bottom: float
    middle: float
    top: float
    share: Callable[[float], float]


def from_nothing(values: Sequence[float]) -> Scale:
    """Return a scale from 0 to a number that is easily read."""
    return _even(nice(max(values, default=0.0)))


def of_bytes(values: Sequence[float]) -> Scale:
    """Return a scale from 0 to a power of two."""
    return _even(2.0 ** math.ceil(math.log2(max((20.0, *values)))))


def by_powers(values: Sequence[float]) -> Scale:
    """Return a scale from one power of ten to another, of values above 0: a hundredfold value hides nothing."""
    low = math.floor(math.log10(min(values, default=0.001)))
    high = max(low + 1, math.ceil(math.log10(max(values, default=1.0))))
    return Scale(
        10.0**low, 10.0 ** ((low + high) / 2), 10.0**high, lambda value: (math.log10(value) - low) / (high - low)
    )


def _even(top: float) -> Scale:
    return Scale(0.0, top / 2, top, lambda value: value / top)


@dataclass(frozen=True)
class Line:
    """One line of a plot: its name, the class that has its colour, and its points in the order of time."""

    name: str
    colour: str
    points: Sequence[Point]

    @property
    def known(self) -> list[float]:
        """The points with known values."""
        return [value for _, value in self.points if value is not None]

    @property
    def last(self) -> float | None:
        """The present value; None if it is unknown."""
        return self.points[-1][1] if self.points else None


@dataclass(frozen=True)
class Row:
    """One row of a plot as a table: when it ends, and the most of each line until then."""

    at: float
    values: Sequence[str]


@dataclass(frozen=True)
class Moment:
    """A part of the drawing and what its lines are there, in words."""

    across: str
    width: str
    words: str


@dataclass(frozen=True)
class Plot:
    """Lines over the hour that ends ``now``. ``says`` writes a number with its unit."""

    title: str
    meaning: str
    says: Says
    lines: Sequence[Line]
    now: float
    scaled: Callable[[Sequence[float]], Scale] = from_nothing

    @cached_property
    def span(self) -> float:
        """The drawn part of the hour, in seconds: less if the service is younger."""
        began = min((line.points[0][0] for line in self.lines if line.points), default=self.now)
        return next((span for span in SPANS if self.now - began <= span), HOUR_SECONDS)

    @property
    def times(self) -> list[str]:
        """The labels below, from the left."""
        quarters = [f"{self.span / 60 * share:.0f} min" for share in (1, 0.75, 0.5, 0.25)]
        return [f"{quarters[0]} ago", *quarters[1:], "now"]

    @cached_property
    def _scale(self) -> Scale:
        return self.scaled([value for line in self.lines for value in line.known])

    @property
    def scale(self) -> list[str]:
        """The labels of the scale, from above."""
        return [self.says(value) for value in (self._scale.top, self._scale.middle, self._scale.bottom)]

    def path(self, line: Line) -> str:
        """Return the ``d`` of the line's path, with gaps for unknown values."""
        return "".join(f"M{'L'.join(piece)}" for piece in self._pieces(line) if len(piece) > 1)

    def dots(self, line: Line) -> str:
        """Return the ``d`` of the points that stand alone: each is a line of no length, seen by its round ends."""
        return "".join(f"M{piece[0]}h0" for piece in self._pieces(line) if len(piece) == 1)

    def _pieces(self, line: Line) -> Iterator[list[str]]:
        for known, piece in groupby(line.points, key=lambda point: point[1] is not None):
            if known:
                yield [self._place(at, value) for at, value in piece if value is not None]

    def _place(self, at: float, value: float) -> str:
        across = max(0.0, WIDTH * (1 - (self.now - at) / self.span))
        return f"{across:.1f} {HEIGHT * (1 - self._scale.share(value)):.1f}"

    @property
    def moments(self) -> list[Moment]:
        """The parts of the drawing from the left, each with the largest value of each line in it, without unknown
        ones.
        """
        wide = max(_MOMENT_SECONDS, self.span / MOST_MOMENTS)
        begins = (self.now - self.span + wide * number for number in range(round(self.span / wide)))
        return [moment for begin in begins if (moment := self._moment(begin, begin + wide)) is not None]

    def _moment(self, begin: float, end: float) -> Moment | None:
        known = [(line.name, most) for line in self.lines if (most := _most(line, begin, end)) is not None]
        if not known:
            return None
        words = ", ".join(f"{name} {self.says(most)}" for name, most in known)
        across, width = (WIDTH * (1 - (self.now - begin) / self.span), WIDTH * (end - begin) / self.span)
        return Moment(f"{across:.1f}", f"{width:.1f}", f"{clock(end)} UTC: {words}")

    def in_words(self, value: float | None) -> str:
        """Return a number with its unit; a dash for none."""
        return "–" if value is None else self.says(value)

    @property
    def summary(self) -> str:
        """The plot in words."""
        lines = (
            f"{line.name}: now {self.in_words(line.last)}, at most {self.in_words(max(line.known, default=None))}"
            for line in self.lines
        )
        return f"{self.title}, {self.meaning}, in the last hour. {'; '.join(lines)}"

    @property
    def rows(self) -> list[Row]:
        """The plot as a table, the newest first: the largest value of each line in five minutes."""
        span = HOUR_SECONDS / ROWS
        ends = [self.now - span * number for number in range(ROWS)]
        return [Row(end, [self.in_words(_most(line, end - span, end)) for line in self.lines]) for end in ends]


def nice(number: float) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that is not below ``number``; 1 for 0."""
    if number <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(number))
    return next(nice * power for nice in _NICE if nice * power >= number * (1 - 1e-9))


def _most(line: Line, begin: float, end: float) -> float | None:
    return max((value for at, value in line.points if begin < at <= end and value is not None), default=None)
