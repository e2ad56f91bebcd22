"""The parts of ``bench merge`` that need no service, on one site and so on one Spark server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from bench.merging.absent_columns import measure_absent_columns
from bench.merging.compaction import measure_compaction
from bench.merging.costs import Meter
from bench.merging.flatness import measure_flatness
from bench.merging.logs import measure_logs
from bench.merging.memory import measure_memory
from bench.merging.merges import measure_large_merge, measure_small_merge
from bench.merging.rounds import measure_rounds
from bench.merging.rules import measure_rules
from bench.merging.tasks import Ground
from bench.site import bench_site
from bench.sizes import Sizes

PARTS: Mapping[str, Callable[[Ground], Iterator[str]]] = {
    "compaction": measure_compaction,
    "large": measure_large_merge,
    "small": measure_small_merge,
    "rounds": measure_rounds,
    "rules": measure_rules,
    "logs": measure_logs,
    "absent": measure_absent_columns,
    "flatness": measure_flatness,
    "memory": measure_memory,  # of all that was measured before
}


def measure_tasks(sizes: Sizes, parts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Return the figures of some of ``PARTS``, in their order; what they left in memory comes after them."""
    if not parts:
        return
    with bench_site() as site:
        ground = Ground(site, Meter(site.executor), sizes)
        for name in PARTS:
            if name in parts or name == "memory":
                yield list(PARTS[name](ground))
