"""``python -m bench NAME``: the machine's facts, then the figures of one benchmark, as Markdown."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence

from bench.absent_columns import measure_absent_columns
from bench.amplification import charts, measure_amplification
from bench.cluster import measure_cluster
from bench.compaction import measure_compaction
from bench.endurance import measure_endurance
from bench.figures import Figure, markdown, table
from bench.fold_and_sort import measure_fold
from bench.growth import measure_growth
from bench.images import measure_images
from bench.ingest.measure import measure_ingest
from bench.javas import measure_javas
from bench.logs import measure_logs
from bench.machine import machine_facts
from bench.many_files import measure_many_files
from bench.many_runs import measure_many_runs
from bench.many_tables import measure_many_tables
from bench.merge_flatness import measure_flatness
from bench.over_http.measure import measure_http
from bench.policies import measure_policies
from bench.row_groups import measure_row_groups
from bench.scans import measure_scans
from bench.site import BenchSite, bench_site
from bench.sizes import Sizes
from bench.smallest_merge import measure_smallest_merge
from bench.stage_settings import measure_settings
from bench.staleness import measure_staleness
from bench.startup import measure_startup

ON_A_SERVICE: Mapping[str, Callable[[], Figure]] = {"smallest": measure_smallest_merge, "many": measure_many_tables}
ON_ONE_SITE: Mapping[str, Callable[[BenchSite, Sizes], Figure]] = {
    "fold": measure_fold,
    "compaction": measure_compaction,
    "flatness": measure_flatness,
    "logs": measure_logs,
    "absent": measure_absent_columns,
}
IN_TABLES: Mapping[str, Callable[[], Iterator[Sequence[str]]]] = {"stale": measure_staleness}
ON_SITES_OF_ITS_OWN: Mapping[str, Callable[[Sizes], Figure]] = {"settings": measure_settings}
SERVING: Mapping[str, Callable[[Sizes], Iterator[Sequence[str]]]] = {
    "http": measure_http,
    "images": measure_images,
    "scan": measure_scans,
}


def _startup(_: Sizes, __: list[str]) -> Iterator[Sequence[str]]:
    yield list(markdown(measure_startup()))


def _merge(sizes: Sizes, only: list[str]) -> Iterator[Sequence[str]]:
    for name, measure in ON_A_SERVICE.items():
        if not only or name in only:
            yield list(markdown(measure()))
    for name, measure_in in IN_TABLES.items():
        if not only or name in only:
            yield from measure_in()
    for name, measure_on in ON_ONE_SITE.items():
        if not only or name in only:
            with bench_site() as site:
                yield list(markdown(measure_on(site, sizes)))
    for name, measure_alone in ON_SITES_OF_ITS_OWN.items():
        if name in only:  # minutes, to decide what is decided
            yield list(markdown(measure_alone(sizes)))
    if not only or "runs" in only:
        yield from measure_many_runs(sizes)


def _amplification(sizes: Sizes, _: list[str]) -> Iterator[Sequence[str]]:
    with bench_site() as site:
        yield list(charts(list(measure_amplification(site, sizes))))


def _policies(sizes: Sizes, _: list[str]) -> Iterator[Sequence[str]]:
    yield from measure_policies(sizes)
    yield from measure_row_groups()


def _serve(sizes: Sizes, only: list[str]) -> Iterator[Sequence[str]]:
    for name, measure in SERVING.items():
        if not only or name in only:
            yield from measure(sizes)


def _ingest(sizes: Sizes, _: list[str]) -> Iterator[Sequence[str]]:
    yield from measure_ingest(sizes)


def _endurance(sizes: Sizes, _: list[str]) -> Iterator[Sequence[str]]:
    yield from measure_endurance(sizes)


def _growth(sizes: Sizes, _: list[str]) -> Iterator[Sequence[str]]:
    yield from measure_growth(sizes)


def _cluster(sizes: Sizes, _: list[str]) -> Iterator[Sequence[str]]:
    yield from measure_cluster(sizes)


def _javas(sizes: Sizes, _: list[str]) -> Iterator[Sequence[str]]:
    yield from measure_javas(sizes)


def _files(sizes: Sizes, _: list[str]) -> Iterator[Sequence[str]]:
    yield from measure_many_files(sizes)


Benchmark = Callable[[Sizes, list[str]], Iterator[Sequence[str]]]
BENCHMARKS: Mapping[str, Benchmark] = {
    "startup": _startup,
    "merge": _merge,
    "amplification": _amplification,
    "policies": _policies,
    "serve": _serve,
    "ingest": _ingest,
    "endurance": _endurance,
    "growth": _growth,
    "cluster": _cluster,
    "javas": _javas,
    "files": _files,
}


def main() -> None:
    """Run the benchmarks that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parts = [*ON_A_SERVICE, *IN_TABLES, *ON_ONE_SITE, *ON_SITES_OF_ITS_OWN, "runs", *SERVING]
    parser.add_argument("--only", nargs="*", default=[], choices=parts, help="parts of merge, serve")
    parser.add_argument("--rounds", type=int, default=Sizes.rounds)
    parser.add_argument("--scale", type=float, default=Sizes.scale, help="below 1 only to try the benchmark itself")
    parser.add_argument("--tables", type=int, nargs="*", default=[], help="rows of the tables that growth makes")
    wanted = parser.parse_args()
    print(*table(("machine", ""), list(machine_facts())), sep="\n")
    for figure in BENCHMARKS[wanted.benchmark](Sizes(wanted.rounds, wanted.scale, tuple(wanted.tables)), wanted.only):
        print("", *figure, sep="\n", flush=True)


if __name__ == "__main__":
    main()
