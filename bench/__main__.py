"""``python -m bench``: the machine's facts, then one table a benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median

from bench.machine import machine_facts
from bench.startup import Timings, measure_startup

BENCHMARKS: Mapping[str, Callable[[], Timings]] = {"startup": measure_startup}


def main() -> None:
    """Run every benchmark."""
    for fact, value in machine_facts():
        print(f"{fact:<14}{value}")
    for name, measure in BENCHMARKS.items():
        print(f"\n{name + ', seconds':<26}{'median':>8}{'least':>8}{'most':>8}{'of':>5}")
        for step, seconds in measure().items():
            print(f"{step:<26}{median(seconds):>8.2f}{min(seconds):>8.2f}{max(seconds):>8.2f}{len(seconds):>5}")


if __name__ == "__main__":
    main()
