"""Tasks run in this process, for tests, simulations and benchmarks."""

from __future__ import annotations

from app.files.layout import Warehouse
from app.kernel.run import run_tasks
from app.kernel.tasks import Job, Progress, Result, Task, from_text, to_text


class LocalExecutor:
    """Runs tasks as Spark's workers do: each travels as text."""

    def run(self, tag: str, job: Job, report: Progress) -> list[Result]:  # noqa: ARG002  # of the protocol
        """Return a result for each task of the job, in order."""
        warehouse, results = Warehouse(job.warehouse), []
        for number, task in enumerate(job.tasks, 1):
            [result] = run_tasks(warehouse, [from_text(Task, to_text(task))])
            results.append(from_text(Result, to_text(result)))
            report(number / len(job.tasks), {"tasks": len(job.tasks), "tasksDone": number})
        return results
