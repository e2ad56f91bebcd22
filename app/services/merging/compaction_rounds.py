"""Rounds: small compactions of several tables share a job; each is committed separately."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from app.catalog.repository import Repository
from app.catalog.tasks.claimed_tasks import ClaimedTask
from app.core.errors import DamagedCatalog
from app.kernel.tasks import Job, Result
from app.services.merging.compactions import Compaction, PlannedStep, plan_step, run_compaction
from app.services.merging.leases import Done, Lease, renewing, run_leased
from app.services.merging.task_results import raise_failures
from app.services.shared.executor import MergeSite
from app.telemetry.traces import job_tag, span

logger = logging.getLogger(__name__)
SMALL_ROWS: Final = 100_000  # state rows of a table whose compactions share a job
# The data files of a small table have at most this size.
SMALL_BYTES: Final = 8 * 2**20
ROUND_TABLES: Final = 50


def is_small_table(repository: Repository, table_id: str) -> bool:
    """Return whether every compaction of the table is small; False if its part of the catalog is damaged."""
    try:
        current = repository.snapshots.current(table_id)
    except DamagedCatalog:
        return False
    runs = current.runs if current else ()
    return sum(run.rows for run in runs) <= SMALL_ROWS and sum(run.size_bytes for run in runs) <= SMALL_BYTES


def run_small_compactions(site: MergeSite, leases: Sequence[Lease]) -> None:
    """Run claimed compactions of small tables to their end. A failure is recorded with its compaction, never raised."""
    with renewing(site, leases):
        planned = {lease: _planned(site, lease) for lease in leases}
        together = {lease: one for lease, one in planned.items() if one is not None}
        results = _results(site, [planned_step for _, planned_step in together.values()])
    if results is None:
        together = {}
    for lease in leases:
        if lease not in together or results is None:
            run_compaction(lease)
            continue
        compaction, step = together[lease]
        of_step, results = results[: len(step.tasks)], results[len(step.tasks) :]
        _end(lease, compaction, step, of_step)


def _planned(site: MergeSite, lease: Lease) -> tuple[Compaction, PlannedStep] | None:
    """Return the one step of a compaction; None if it has none or several, or fails: then it runs alone, and reports
    why.
    """
    try:
        compaction = Compaction.from_claim(site, lease.claimed)
        if len(compaction.steps) == 1:
            return compaction, plan_step(site, lease.claimed, compaction.steps[0])
    except Exception:
        logger.info("compaction %s leaves its round", lease.claimed.task.id, exc_info=True)
    return None


def _results(site: MergeSite, steps: Sequence[PlannedStep]) -> list[Result] | None:
    """Return the results of all tasks; None if the job failed, so that each compaction is done by itself."""
    tasks = tuple(task for step in steps for task in step.tasks)
    if not tasks:
        return []
    try:
        with span("round", {"compactions": len(steps)}):
            job = Job(site.warehouse.address, f"{len(steps)} small compactions", tasks)
            return site.executor.run(job_tag(), job, lambda *_: None)
    except Exception:
        logger.info("a round of %d compactions failed; each is done again by itself", len(steps), exc_info=True)
        return None


def _end(lease: Lease, compaction: Compaction, step: PlannedStep, results: Sequence[Result]) -> None:
    def commit(_: ClaimedTask, held: Lease) -> Done:
        raise_failures(held.site, step.tasks, results)
        compaction.commit(step, results, held)
        return compaction.done(held)

    run_leased(lease, commit)
