"""Whole stages and adaptive execution, each on and off (docs/decisions/0011): large jobs in a JVM that never ran them,
and once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import psutil

from app.core.plan.jobs import FileSizes, MergeJob
from bench.compaction import full_compaction, two_runs
from bench.figures import Figure, Ratio, seconds
from bench.processes import Server
from bench.site import BenchSite, bench_site
from bench.sizes import Sizes
from bench.wide_table import batch_records
from spark_jobs.compact import run_compaction
from spark_jobs.merge import run_merge

MERGED = 1_000_000
RANGES = 4
WHOLE, ADAPTIVE = "spark.sql.codegen.wholeStage", "spark.sql.adaptive.enabled"
SETTINGS: Mapping[str, Mapping[str, str]] = {
    f"{'' if whole else 'no '}whole stages, {'' if adaptive else 'not '}adaptive": {
        WHOLE: str(whole).lower(),
        ADAPTIVE: str(adaptive).lower(),
    }
    for whole in (True, False)
    for adaptive in (True, False)
}
AS_IT_IS = "no whole stages, adaptive"


def measure_settings(sizes: Sizes) -> Figure:
    """Seconds of a merge in several ranges and of a full compaction, for each of ``SETTINGS`` in a JVM of its own."""
    timings: dict[str, list[float]] = {}
    for turn in range(sizes.rounds):
        for name in list(SETTINGS)[:: -1 if turn % 2 else 1]:
            with bench_site() as site:
                for step, taken in _measured(site, sizes, SETTINGS[name]):
                    timings.setdefault(f"{step}: {name}", []).append(taken)
    steps = sorted(timings)
    kinds = dict.fromkeys(step.split(": ")[0] for step in steps)
    others = [name for name in SETTINGS if name != AS_IT_IS]
    return Figure(
        "Whole stages and adaptive execution",
        f"The merge job on one staged batch of {sizes.rows(MERGED):,} records in {RANGES} ranges, and the full "
        f"compaction of a run of as many rows and one of {sizes.records:,}; first in a JVM that has merged two other "
        "batches, and again. A JVM of its own for each pair of settings in each round.",
        {step: timings[step] for step in steps},
        [Ratio(f"{kind}: {AS_IT_IS}", f"{kind}: {name}") for kind in kinds for name in others],
    )


def _measured(site: BenchSite, sizes: Sizes, configs: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    compaction = full_compaction(site, two_runs(site, sizes))
    merge = _merge_job(site, sizes)
    server = site.executor.open().server
    assert server is not None, "benchmarks run on a server of their own"
    jvm = Server("", psutil.Process(server.pid))
    with site.session() as spark:
        for key, value in configs.items():
            spark.conf.set(key, value)
        jobs: Mapping[str, Callable[[], None]] = {
            "merge": partial(run_merge, spark, merge),
            "compaction": partial(run_compaction, spark, compaction),
        }
        for time in ("first", "again"):
            for name, job in jobs.items():
                before = jvm.cpu_seconds()
                yield f"{name}, {time}", seconds(job)
                yield f"{name}, {time}, CPU of the JVM", jvm.cpu_seconds() - before


def _merge_job(site: BenchSite, sizes: Sizes) -> MergeJob:
    count = sizes.rows(MERGED)
    table = site.create_table("ranged")
    batch = site.stage(table, batch_records(1, count, count))
    in_ranges = FileSizes(count, batch.size_bytes, -(-batch.size_bytes // RANGES))
    return MergeJob(site.plan(table), {site.staged_uri(table, batch): 1}, in_ranges, str(site.folder / "ranged"), 0)
