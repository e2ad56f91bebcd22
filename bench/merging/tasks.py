"""Tasks as merges and compactions have them, but in as many token ranges as a benchmark wants, and never committed."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from app.core.table.history import Batch, Table
from app.files.layout import run_folder
from app.kernel.run import LocalExecutor
from app.kernel.tasks import LEAST_TOKEN, MOST_TOKEN, Job, Result, Task
from app.services.merging.task_results import plan_of, raise_failures
from bench.merging.costs import Cost, Meter
from bench.site import BenchSite
from bench.sizes import Sizes

TasksExecutor = Callable[[Job], list[Result]]
_TOKENS = 2**64


@dataclass(frozen=True)
class Ground:
    """What all benchmarks of tasks share in one run: the site, what measures it, the sizes."""

    site: BenchSite
    meter: Meter
    sizes: Sizes

    def here(self, job: Job) -> list[Result]:
        """Run a job in this process."""
        return LocalExecutor().run("", job, lambda *_: None)

    def on_spark(self, job: Job) -> list[Result]:
        """Run a job on Spark."""
        return self.site.executor.run(f"bench-{uuid.uuid4().hex}", job, lambda *_: None)

    def step(self, run: TasksExecutor, tasks: Sequence[Task], times: int = 1) -> Callable[[], Cost]:
        """Return what measures a job of ``tasks``, the mean of so many ``times``. What it writes is removed."""
        warehouse = self.site.merges.warehouse

        def once() -> Cost:
            outputs = [uuid.uuid4().hex for _ in range(times)]
            jobs = [
                Job(warehouse.address, "benchmark", tuple(replace(task, output=output) for task in tasks))
                for output in outputs
            ]
            results: list[Result] = []

            def act() -> None:
                for job in jobs:
                    results.extend(run(job))

            cost = self.meter.cost(act)
            raise_failures(self.site.merges, tasks, results)
            for output in outputs:
                for table_id in {task.table_id for task in tasks}:
                    shutil.rmtree(warehouse.path(*run_folder(table_id, output)), ignore_errors=True)
            return cost / times

        return once

    def times(self, act: Callable[[], None], count: int) -> Callable[[], Cost]:
        """Return what measures ``act``, the mean of so many times."""

        def again() -> None:
            for _ in range(count):
                act()

        return lambda: self.meter.cost(again) / count

    def merge_task(self, table: Table, batches: Sequence[Batch]) -> Task:
        """Return the merge of ``batches`` as one task."""
        plan = plan_of(self.site.merges, table, {table.schema_id})
        return replace(plan.merge(batches, "", None)[0], last_token=MOST_TOKEN)

    def compaction_task(self, table: Table) -> Task:
        """Return the full compaction of a table as one task."""
        runs = self.site.snapshot(table).runs
        plan = plan_of(self.site.merges, table, {run.schema_id for run in runs})
        return replace(plan.compaction(runs, "", oldest=True)[0], runs=runs, last_token=MOST_TOKEN, place=0)


def cut(task: Task, count: int) -> list[Task]:
    """Return the same work in ``count`` tasks, each a range of tokens."""
    width = _TOKENS // count
    first = [LEAST_TOKEN + place * width for place in range(count)]
    last = [*(one - 1 for one in first[1:]), MOST_TOKEN]
    return [
        replace(task, first_token=one, last_token=other, place=place)
        for place, (one, other) in enumerate(zip(first, last, strict=True))
    ]
