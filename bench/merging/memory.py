"""What Spark's processes hold once everything else was measured."""

from __future__ import annotations

from collections.abc import Iterator

from bench.figures import table
from bench.merging.tasks import Ground
from bench.served.processes import status_mib

GOALS = {"JVM": 700, "largest Python worker": 512}  # MiB


def measure_memory(ground: Ground) -> Iterator[str]:
    """Return the resident MiB of the JVM and of the largest Python worker: now, and the most that they ever had."""
    workers = [worker for worker in ground.meter.workers() if worker.is_running()]
    by_kind = {"JVM": [ground.meter.jvm], "largest Python worker": workers}
    cells = []
    for kind, processes in by_kind.items():
        now, most = (
            max((status_mib(process, member) for process in processes), default=0.0) for member in ("VmRSS", "VmHWM")
        )
        goal = GOALS[kind]
        cells.append((kind, f"{now:.0f}", f"{most:.0f}", f"{now / goal:.2f}", f"{most / goal:.2f}", f"{goal} MiB"))
    yield from ("### Memory", "", "Resident MiB at the end of this run; shared pages count in each process.", "")
    yield from table(("", "now", "most", "ratio", "of the most", "to"), cells)
