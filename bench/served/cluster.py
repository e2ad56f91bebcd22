"""Whether a compaction's work splits over the executors of a cluster: tasks and CPU by executor, on one machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import psutil

from bench.figures import table
from bench.served.growth import NAME, PATIENCE_SECONDS, compacted, merged
from bench.served.processes import cpu_of_family, cpu_seconds, keyfold, started
from bench.served.serving import client_of, wait_ok
from bench.site import NO_COMPACTION, bench_site_in
from bench.sizes import Sizes
from tests.cluster import Cluster, spark_cluster

EXECUTORS = (1, 2, 4)
TABLE_ROWS = 400_000
FILES = {"target-file-size": "1 mb"}  # as many ranges as a table of tens of millions of rows has
WITH_PAGES = {"spark.ui.enabled": "true", "spark.ui.port": "0"}


@dataclass(frozen=True)
class Split:
    """How one compaction was split over ``executors``: tasks and CPU seconds of each, and those of all tasks."""

    executors: int
    seconds: float
    tasks: Sequence[int]
    cpu: Sequence[float]
    task_cpu: float
    driver_cpu: float


def measure_cluster(sizes: Sizes) -> Iterator[Sequence[str]]:
    """A table by number of executors. Each cluster compacts the same table with one more small run."""
    rows = sizes.rows(TABLE_ROWS)
    with TemporaryDirectory(prefix="keyfold-cluster-") as name:
        folder = Path(name)
        with bench_site_in(folder / "data") as site:
            site.load(site.create_table(NAME, NO_COMPACTION | FILES), rows)
        splits = []
        for number, executors in enumerate(EXECUTORS):
            splits.append(_split(folder, executors, number + 1, rows, sizes.records // 10))
            print(json.dumps(vars(splits[-1])), file=sys.stderr, flush=True)
    yield [*_heading(rows, sizes.records // 10), *_lines(splits)]


def _split(folder: Path, executors: int, number: int, rows: int, records: int) -> Split:
    """One merge, so that there is something to compact, and then the compaction."""
    below = folder / f"cluster-{executors}"
    below.mkdir()
    with (
        spark_cluster(below, executors, WITH_PAGES) as cluster,
        started(keyfold(folder / "data"), below / "serve.log", {"KEYFOLD_SPARK_REMOTE": cluster.remote}) as server,
        client_of(server.url) as client,
    ):
        wait_ok(client, "/readyz", PATIENCE_SECONDS)
        merged(client, rows, number, records)
        pages = _pages(cluster)
        before, tasks_before = _cpu(cluster), _tasks(pages)
        known = {stage["stageId"] for stage in _stages(pages)}
        task = compacted(client)
        after, tasks_after = _cpu(cluster), _tasks(pages)
        stages = [stage for stage in _stages(pages) if stage["stageId"] not in known]
    return Split(
        executors,
        (task["finishedAt"] - task["startedAt"]) / 1000,
        sorted(tasks_after[one] - tasks_before.get(one, 0) for one in tasks_after),
        sorted(after[pid] - before[pid] for pid in after if pid != cluster.server.pid),
        sum(stage["executorCpuTime"] for stage in stages) / 1e9,
        after[cluster.server.pid] - before[cluster.server.pid],
    )


def _cpu(cluster: Cluster) -> Mapping[int, float]:
    """Return the CPU seconds that each executor with its Python workers, and the server, which drives them, have taken
    so far; by process id.
    """
    executors = [psutil.Process(pid) for worker in cluster.workers for pid in cluster.executors(worker)]
    taken = {
        executor.pid: cpu_seconds(executor) + cpu_of_family(executor.children(recursive=True)) for executor in executors
    }
    return {**taken, cluster.server.pid: cpu_seconds(psutil.Process(cluster.server.pid))}


def _pages(cluster: Cluster) -> str:
    """Return the URL below which Spark describes its application."""
    port = cluster.server.wait_for(r"Successfully started service 'SparkUI' on port (\d+)")
    url = f"http://127.0.0.1:{port}/api/v1/applications"
    return f"{url}/{_fetched(url)[0]['id']}"


def _fetched(url: str) -> Any:
    return httpx.get(url, trust_env=False, timeout=60).raise_for_status().json()


def _stages(pages: str) -> list[dict[str, Any]]:
    return list(_fetched(f"{pages}/stages?status=complete"))


def _tasks(pages: str) -> Mapping[str, int]:
    """The tasks that each executor has completed."""
    return {one["id"]: one["completedTasks"] for one in _fetched(f"{pages}/executors") if one["id"] != "driver"}


def _heading(rows: int, records: int) -> Iterator[str]:
    yield from ("### A cluster", "")
    yield (
        f"A full compaction of {rows:,} rows × 20 columns and a run of {records:,} records in files of at most "
        f"{FILES['target-file-size']}, by a `keyfold serve` on a standalone Spark cluster: executors of one core, each "
        "a JVM that compiles with Java's first compiler alone. All on this machine, so CPU time counts, not the clock."
    )
    yield ""


def _lines(splits: Sequence[Split]) -> Iterator[str]:
    head = (
        "executors",
        "tasks",
        "of each executor",
        "CPU s of all tasks",
        "a task",
        "CPU s of each executor",
        "driver",
    )
    yield from table((*head, "seconds"), [_line(split) for split in splits])


def _line(split: Split) -> Sequence[str]:
    tasks = sum(split.tasks)
    return (
        str(split.executors),
        str(tasks),
        ", ".join(map(str, split.tasks)),
        f"{split.task_cpu:.1f}",
        f"{split.task_cpu / max(1, tasks):.2f}",
        ", ".join(f"{one:.1f}" for one in split.cpu) + f" (mean {mean(split.cpu):.1f})",
        f"{split.driver_cpu:.1f}",
        f"{split.seconds:.1f}",
    )
