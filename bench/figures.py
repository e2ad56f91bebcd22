"""Figures: seconds measured over several rounds, the ratios between them, and both printed as Markdown."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

T = TypeVar("T")
Timings = Mapping[str, Sequence[float]]
"""Seconds by step, one a round."""


@dataclass(frozen=True)
class Ratio:
    """How many times ``of`` takes as long as ``to``, in medians; ``target`` is the most it should be."""

    of: str
    to: str
    target: float | None = None


@dataclass(frozen=True)
class Figure:
    """What one benchmark found; ``about`` says what was done, so that a reader knows what the seconds mean."""

    title: str
    about: str
    timings: Timings
    ratios: Sequence[Ratio] = ()


def seconds(act: Callable[[], object]) -> float:
    """How long ``act`` takes."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def interleaved(steps: Mapping[str, Callable[[], T]], rounds: int, warm_ups: int = 2) -> Mapping[str, Sequence[T]]:
    """Each round measures every step once, so that other load of the machine hits all alike.

    Every second round goes backwards: each of a pair comes first as often as second. Steps return what they measured,
    mostly seconds; ``warm_ups`` rounds before the first are left out.
    """
    timings: dict[str, list[T]] = {name: [] for name in steps}
    for number in range(-warm_ups, rounds):
        for name in list(steps)[:: -1 if number % 2 else 1]:
            taken = steps[name]()
            if number >= 0:
                timings[name].append(taken)
    return timings


def markdown(figure: Figure) -> Iterator[str]:
    """The lines of a figure as Markdown."""
    yield from (f"### {figure.title}", "", figure.about, "")
    rows = [(step, *_statistics(taken)) for step, taken in figure.timings.items()]
    yield from table(("seconds", "median", "least", "most", "of"), rows)
    if figure.ratios:
        yield ""
        yield from table(("ratio of medians", "measured", "target"), [_ratio(figure, ratio) for ratio in figure.ratios])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a Markdown table."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def chart(title: str, steps: str, values: Sequence[float], at: Sequence[str] = ()) -> Iterator[str]:
    """The lines of one curve as Markdown: a value after each of so many ``steps``, or ``at`` each of some of them."""
    points = ", ".join(f"{value:.2f}" for value in values)
    places = f"[{', '.join(at)}]" if at else f"1 --> {len(values)}"
    yield from ("", "```mermaid", "xychart-beta", f'    title "{title}"', f'    x-axis "{steps}" {places}')
    yield from (f'    y-axis "{title}" 0 --> {max([1.0, *values]) * 1.1:.1f}', f"    line [{points}]", "```")


def _statistics(taken: Sequence[float]) -> tuple[str, ...]:
    if not taken:
        return "-", "-", "-", "0"
    return f"{median(taken):.3f}", f"{min(taken):.3f}", f"{max(taken):.3f}", str(len(taken))


def _ratio(figure: Figure, ratio: Ratio) -> tuple[str, str, str]:
    measured = median(figure.timings[ratio.of]) / median(figure.timings[ratio.to])
    target = "" if ratio.target is None else f"≤ {ratio.target:.2f}"
    return f"{ratio.of} : {ratio.to}", f"{measured:.2f}", target
