"""``python -m bench NAME``: the machine's facts, then the figures of one benchmark, as Markdown."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from bench.amplification import charts, measure_amplification
from bench.figures import markdown, table
from bench.ingest.measure import measure_ingest
from bench.machine import machine_facts
from bench.many_files import measure_many_files
from bench.merging.measure import PARTS, measure_tasks
from bench.over_http.measure import measure_http
from bench.policies import measure_policies
from bench.publication import measure_publication
from bench.reads.images import measure_images
from bench.reads.scans import measure_scans
from bench.served.clients import measure_clients
from bench.served.cluster import measure_cluster
from bench.served.endurance import measure_endurance
from bench.served.fairness import measure_fairness
from bench.served.growth import measure_growth
from bench.served.many_tables import measure_many_tables
from bench.served.smallest_merge import measure_smallest_merge
from bench.served.staleness import measure_staleness
from bench.served.startup import measure_startup
from bench.site import bench_site
from bench.sizes import QUICK, Sizes

Measure = Callable[[Sizes], Iterator[Sequence[str]]]
Benchmark = Callable[[Sizes, list[str]], Iterator[Sequence[str]]]


def _startup(_: Sizes) -> Iterator[Sequence[str]]:
    yield list(markdown(measure_startup()))


def _smallest(_: Sizes) -> Iterator[Sequence[str]]:
    yield list(markdown(measure_smallest_merge()))


def _amplification(sizes: Sizes) -> Iterator[Sequence[str]]:
    with bench_site() as site:
        yield list(charts(list(measure_amplification(site, sizes))))


SERVED: Mapping[str, Measure] = {
    "smallest": _smallest,
    "many": measure_many_tables,
    "stale": measure_staleness,
    "fair": measure_fairness,
}
SERVING: Mapping[str, Measure] = {"http": measure_http, "images": measure_images, "scan": measure_scans}


def _merge(sizes: Sizes, only: list[str]) -> Iterator[Sequence[str]]:
    yield from measure_tasks(sizes, [name for name in PARTS if not only or name in only])
    yield from _parts_of(SERVED)(sizes, only)


def _parts_of(parts: Mapping[str, Measure]) -> Benchmark:
    def measure(sizes: Sizes, only: list[str]) -> Iterator[Sequence[str]]:
        for name, measure_part in parts.items():
            if not only or name in only:
                yield from measure_part(sizes)

    return measure


def _whole(measure: Measure) -> Benchmark:
    return lambda sizes, _: measure(sizes)


BENCHMARKS: Mapping[str, Benchmark] = {
    "startup": _whole(_startup),
    "merge": _merge,
    "amplification": _whole(_amplification),
    "policies": _whole(measure_policies),
    "serve": _parts_of(SERVING),
    "ingest": _whole(measure_ingest),
    "endurance": _whole(measure_endurance),
    "growth": _whole(measure_growth),
    "cluster": _whole(measure_cluster),
    "clients": _whole(measure_clients),
    "files": _whole(measure_many_files),
    "publication": _whole(measure_publication),
}


def main() -> None:
    """Run the benchmark that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parts = [*PARTS, *SERVED, *SERVING]
    parser.add_argument("--only", nargs="*", default=[], choices=parts, help="parts of merge, serve")
    parser.add_argument("--rounds", type=int, default=Sizes.rounds)
    parser.add_argument("--scale", type=float, default=Sizes.scale, help="below 1 only to try the benchmark itself")
    parser.add_argument("--quick", action="store_true", help="few rounds of small sizes, to try the benchmark itself")
    parser.add_argument("--tables", type=int, nargs="*", default=[], help="rows of the tables of growth and compaction")
    wanted = parser.parse_args()
    tables = tuple(wanted.tables)
    sizes = replace(QUICK, tables=tables) if wanted.quick else Sizes(wanted.rounds, wanted.scale, tables)
    print(*table(("machine", ""), list(machine_facts())), sep="\n")
    for figure in BENCHMARKS[wanted.benchmark](sizes, wanted.only):
        print("", *figure, sep="\n", flush=True)


if __name__ == "__main__":
    main()
