"""What a full compaction of a base and four young runs costs beyond a copy, in CPU seconds of the worker or of the JVM:
cold and warm, and which of the JVM's threads take them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from statistics import median

import psutil
from pyspark.sql import DataFrame
from pyspark.sql.connect.session import SparkSession

from app.core.plan.jobs import CompactionJob
from app.core.table.history import Table
from bench.compaction import combine_here, copy_here, full_compaction
from bench.figures import interleaved, table
from bench.site import BenchSite, bench_site
from bench.sizes import Sizes
from bench.wide_table import batch_records
from spark_jobs.compact import run_compaction
from spark_jobs.expressions import key_names, state_schema
from spark_jobs.token_ranges import ROW_GROUP_BYTES

BASE_ROWS, YOUNG_ROWS, YOUNG = 200_000, 30_000, 4
WARM_UPS = 4
THREADS: Mapping[str, tuple[str, ...]] = {"tasks": ("Executor",), "compiler": ("C1", "C2"), "collector": ("GC", "VM")}
"""Kinds of threads of the JVM by how their names begin; the rest plans, serves and waits."""
GOALS = {"cold": 1.3, "warm": 1.15}

Step = Callable[[SparkSession, CompactionJob], None]
StepHere = Callable[[BenchSite, Table, CompactionJob], None]


def measure_many_runs(sizes: Sizes) -> Iterator[Sequence[str]]:
    """The first of each step in a JVM of its own, then all in turns in one JVM."""
    names = (*STEPS_HERE, *STEPS)
    cold = {name: [_cold(sizes, name) for _ in range(sizes.rounds)] for name in names}
    with bench_site() as site:
        made = many_runs(site, sizes)
        with site.session() as spark:
            steps = {name: _counted(site, spark, made, name) for name in names}
            warm = interleaved(steps, sizes.rounds, WARM_UPS)
    head = ("CPU seconds, medians", *STEPS_HERE, "ratio", *STEPS, "ratio", "goal")
    yield [
        "### Full compaction of many runs",
        "",
        f"A run of {sizes.rows(BASE_ROWS):,} rows and {YOUNG} of {sizes.rows(YOUNG_ROWS):,} (half of them new keys).",
        "",
        *table(head, [*_cells("cold", cold), *_cells("warm", warm)]),
    ]


def many_runs(site: BenchSite, sizes: Sizes) -> Table:
    """A table of a run as a load leaves it and of those of later batches, which Spark has merged."""
    rows = sizes.rows(BASE_ROWS)
    made = site.create_table("many_runs")
    site.load(made, rows)
    for number in range(1, YOUNG + 1):
        site.stage(made, batch_records(number, rows, sizes.rows(YOUNG_ROWS)))
        site.merge(made)
    return made


def _copy(spark: SparkSession, job: CompactionJob) -> None:
    _write(_all(spark, job), job)


def _sorted_copy(spark: SparkSession, job: CompactionJob) -> None:
    _write(_all(spark, job).sortWithinPartitions(*key_names(job.plan)), job)


def _all(spark: SparkSession, job: CompactionJob) -> DataFrame:
    """The rows of all runs in one task, as a compaction of one range has them."""
    reader = spark.read.schema(state_schema(job.plan))
    runs: list[DataFrame] = [reader.parquet(*(file.uri for file in run.files)) for run in job.runs]
    return reduce(DataFrame.unionAll, runs).coalesce(1)


def _write(rows: DataFrame, job: CompactionJob) -> None:
    rows.write.mode("overwrite").option("parquet.block.size", ROW_GROUP_BYTES).parquet(job.output)


STEPS: Mapping[str, Step] = {"compaction": run_compaction, "copy": _copy, "sorted copy": _sorted_copy}
STEPS_HERE: Mapping[str, StepHere] = {"compaction in the worker": combine_here, "copy in the worker": copy_here}


def _cold(sizes: Sizes, name: str) -> Counter[str]:
    """What the first of a step takes in a JVM that has merged, but neither compacted nor copied."""
    with bench_site() as site:
        made = many_runs(site, sizes)
        with site.session() as spark:
            return _counted(site, spark, made, name)()


def _counted(site: BenchSite, spark: SparkSession, made: Table, name: str) -> Callable[[], Counter[str]]:
    job = full_compaction(site, made)
    pid = os.getpid() if name in STEPS_HERE else site.executor.pid

    def run() -> Counter[str]:
        before = cpu_by_thread(pid)
        if name in STEPS_HERE:
            STEPS_HERE[name](site, made, job)
        else:
            STEPS[name](spark, job)
        taken = cpu_by_thread(pid)
        taken.subtract(before)
        return taken

    return run


def cpu_by_thread(pid: int) -> Counter[str]:
    """CPU seconds of a process so far: ``all``, and those of the threads that live, by kind. They are hundredths each,
    and threads end: the kinds come to a little less than all.
    """
    process = psutil.Process(pid)
    times = process.cpu_times()
    found: Counter[str] = Counter({"all": times.user + times.system})
    for thread in process.threads():
        try:
            name = psutil.Process(thread.id).name()
        except psutil.NoSuchProcess:
            continue
        kind = next((kind for kind, starts in THREADS.items() if name.startswith(starts)), "rest")
        found[kind] += thread.user_time + thread.system_time
    return found


def _cells(when: str, found: Mapping[str, Sequence[Counter[str]]]) -> Iterator[Sequence[str]]:
    for kind in ("all", *THREADS, "rest"):
        taken = {name: median(one[kind] for one in found[name]) for name in found}
        here = [f"{taken[name]:.2f}" if kind == "all" else "" for name in STEPS_HERE]
        ratios = [
            f"{taken[name] / taken[copy]:.2f}" if kind == "all" else ""
            for name, copy in (("compaction in the worker", "copy in the worker"), ("compaction", "copy"))
        ]
        goal = f"≤ {GOALS[when]:.2f}" if kind == "all" else ""
        yield (f"{when}: {kind}", *here, ratios[0], *(f"{taken[name]:.2f}" for name in STEPS), ratios[1], goal)
