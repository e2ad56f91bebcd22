"""Costs: seconds by the clock, and of CPU by kind of process, as lines of a table with a ratio each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from statistics import median

import psutil

from app.spark import SparkExecutor
from bench.figures import table
from bench.served.processes import cpu_of_family, cpu_seconds

HEAD = ("", "wall s", "CPU s: here", "JVM", "Python workers", "all CPU s", "ratio", "to", "goal")


@dataclass(frozen=True)
class Cost:
    """Seconds by the clock, and of CPU: of this process, of Spark's JVM, of Spark's Python workers."""

    wall: float
    here: float
    jvm: float
    workers: float

    @property
    def cpu(self) -> float:
        """CPU seconds of all processes."""
        return self.here + self.jvm + self.workers

    def __truediv__(self, count: int) -> Cost:
        return Cost(*(one / count for one in astuple(self)))


@dataclass(frozen=True)
class Goal:
    """How many times as long as ``baseline``, another step or a number of seconds, a step may take.

    Without ``most`` the ratio is only shown. It is of seconds by the clock, or with ``cpu`` of CPU seconds.
    """

    step: str
    baseline: str | float
    most: float | None = None
    cpu: bool = False

    def ratio(self, medians: Mapping[str, Cost]) -> float:
        """Return the ratio that was measured."""
        baseline = self.baseline if isinstance(self.baseline, float) else self._seconds(medians[self.baseline])
        return self._seconds(medians[self.step]) / baseline

    def _seconds(self, cost: Cost) -> float:
        return cost.cpu if self.cpu else cost.wall

    def __str__(self) -> str:
        kind = "CPU" if self.cpu else "wall"
        return f"{kind}: {f'{self.baseline} s' if isinstance(self.baseline, float) else self.baseline}"


class Meter:
    """Measures what is done by this process and by the Spark server of ``executor``."""

    def __init__(self, executor: SparkExecutor) -> None:
        self._jvm = psutil.Process(executor.pid)

    def cost(self, act: Callable[[], object]) -> Cost:
        """Return what ``act`` costs. CPU seconds of the JVM and the workers are counted in hundredths."""
        jvm, workers = self._spark()
        here, wall = time.process_time(), time.perf_counter()
        act()
        wall, here = time.perf_counter() - wall, time.process_time() - here
        jvm_then, workers_then = self._spark()
        return Cost(wall, here, jvm_then - jvm, workers_then - workers)

    def _spark(self) -> tuple[float, float]:
        return cpu_seconds(self._jvm), cpu_of_family(self.workers())

    def workers(self) -> list[psutil.Process]:
        """Return the Python workers, and the process that forks them."""
        workers: list[psutil.Process] = self._jvm.children(recursive=True)
        return workers

    @property
    def jvm(self) -> psutil.Process:
        """The server."""
        return self._jvm


def lines(costs: Mapping[str, Sequence[Cost]], goals: Sequence[Goal]) -> Iterator[str]:
    """Return a Markdown table of the medians, a line for each step with its ratios."""
    medians = {name: Cost(*map(median, zip(*map(astuple, taken), strict=True))) for name, taken in costs.items()}
    yield from table(HEAD, [cells for name in medians for cells in _cells(name, medians, goals)])


def _cells(name: str, medians: Mapping[str, Cost], goals: Sequence[Goal]) -> Iterator[Sequence[str]]:
    """Return a line for each ratio of a step; the first also has the seconds."""
    cost = medians[name]
    seconds = tuple(f"{one:.3g}" for one in (*astuple(cost), cost.cpu))
    of_step = [goal for goal in goals if goal.step == name]
    for place, goal in enumerate(of_step):
        most = "" if goal.most is None else f"≤ {goal.most:.2f}"
        yield (name, *(seconds if place == 0 else ("",) * len(seconds)), f"{goal.ratio(medians):.2f}", str(goal), most)
    if not of_step:
        yield (name, *seconds, "1.00", "itself", "")
