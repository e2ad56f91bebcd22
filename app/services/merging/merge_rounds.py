"""Rounds: small merges of several tables, which share a job and a commit (docs/decisions/0041).

A merge that cannot complete in its round is handed back, and is repeated alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from app.catalog.repository import FoldedMerge, WaitingMerge
from app.core.errors import DamagedCatalog
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.history import Run, Snapshot
from app.files.writable import check_not_gone
from app.kernel.tasks import Job, Result
from app.services.merging.compactions import request_due_compactions
from app.services.merging.leases import Done, Lease, log_outcome, renewing
from app.services.merging.merges import PlannedMerge, folded_by, plan_merge, totals_surely_fit
from app.services.shared.executor import MergeSite
from app.telemetry.entries import TaskOutcome
from app.telemetry.logs import about
from app.telemetry.traces import job_tag, span

logger = logging.getLogger(__name__)
T = TypeVar("T")


def claim_round(site: MergeSite, owner: str, chosen: Sequence[WaitingMerge]) -> list[Lease]:
    """Claim the merges that no other worker has claimed, and return their leases; ``owner`` is unique to this round."""
    if not chosen:
        return []
    try:
        with site.database.transaction(wakes=False) as repository:
            claimed = repository.rounds.claim(chosen, owner, site.lease_seconds)
    except DamagedCatalog as error:
        if len(chosen) > 1:  # of one table; the others are claimed alone
            return [lease for waiting_merge in chosen for lease in claim_round(site, owner, [waiting_merge])]
        logger.error("a merge of table %s waits: %s", chosen[0].table.full_name, error)  # noqa: TRY400
        return []
    return [Lease(site, claimed_task) for claimed_task in claimed]


def run_round(site: MergeSite, leases: Sequence[Lease]) -> list[Lease]:
    """Fold claimed small merges and commit them together; return the committed ones. The others are handed back."""
    began = time.monotonic()
    with span("round", {"merges": len(leases)}):
        with renewing(site, leases):
            folded = _folded(site, leases)
            snapshots = _committed(site, [*folded.values()])
        done = [lease for lease in leases if lease.claimed.task.id in snapshots]
        for lease in done:
            _log_merged(lease, folded[lease], time.monotonic() - began)
    for lease in leases:
        if lease.claimed.task.id not in snapshots and not lease.handed_back:
            lease.hand_back()
    return done


def _log_merged(lease: Lease, folded: FoldedMerge, seconds: float) -> None:
    claimed = lease.claimed
    ids = {"merge": claimed.task.id, "table": claimed.table.id}
    done: dict[str, str | int] = {"outcome": TaskOutcome.SUCCEEDED, "rows": folded.rows, "records": folded.records}
    with about(**ids), span("merge", {**ids, "table": claimed.table.full_name, **done}):
        log_outcome(lease, TaskOutcome.SUCCEEDED, Done(folded.rows, folded.records), seconds)


def _folded(site: MergeSite, leases: Sequence[Lease]) -> dict[Lease, FoldedMerge]:
    """Return the folded merges of the round, without those that must run alone, which then report why."""
    planned = {
        lease: planned_merge
        for lease in leases
        if (planned_merge := _tried(lease, partial(plan_merge, site, lease.claimed)))
    }
    tasks = [task for planned_merge in planned.values() for task in planned_merge.tasks]
    if not tasks:
        return {}
    title = f"{len(planned)} small merges"
    try:
        results = iter(site.executor.run(job_tag(), Job(site.warehouse.address, title, tuple(tasks)), _unheard))
    except Exception:
        logger.info("a round of %d merges failed; each is done again by itself", len(planned), exc_info=True)
        return {}
    folded = {}
    for lease, planned_merge in planned.items():
        of_merge = [next(results) for _ in planned_merge.tasks]
        runs = _tried(lease, partial(_runs_of, site, planned_merge, of_merge))
        if runs:
            claimed, records = lease.claimed, sum(batch.records for batch in lease.claimed.batches)
            compared = bool(compile_plan(claimed.table.schema).totals)
            folded[lease] = FoldedMerge(claimed, runs, records, compared)
    return folded


def _runs_of(site: MergeSite, planned: PlannedMerge, results: Sequence[Result]) -> tuple[Run, ...]:
    """Return the runs of a merge that only lacks its commit; empty if it needs more work."""
    if any(result.failure for result in results):
        return ()
    runs, claimed = folded_by(site, planned, results).runs, planned.claimed
    older = claimed.base.runs if claimed.base else ()
    return runs if totals_surely_fit(site, claimed.table, older, runs) else ()


def _tried(lease: Lease, work: Callable[[], T]) -> T | None:
    claimed = lease.claimed
    with about(merge=claimed.task.id, table=claimed.table.id):
        try:
            return work()
        except Exception:
            logger.info("merge %s leaves its round", claimed.task.id, exc_info=True)
            return None


def _unheard(_: float, __: Mapping[str, int]) -> None:
    """Ignore the progress, which small merges do not show."""


def _committed(site: MergeSite, folded: Sequence[FoldedMerge]) -> Mapping[str, Snapshot]:
    """Commit the merges together and return their snapshots, by merge. Merges that could not be committed are left
    out.
    """
    if not folded:
        return {}
    try:
        check_not_gone(site.warehouse)
        with site.database.transaction() as repository:
            made = repository.rounds.commit(folded)
            tables = {folded_merge.claimed.task.id: folded_merge.claimed.table for folded_merge in folded}
            request_due_compactions(repository, [(tables[merge], snapshot) for merge, snapshot in made.items()])
    except Exception:
        logger.warning(
            "%d merges are done again, each by itself: they could not be committed", len(folded), exc_info=True
        )
        return {}
    site.database.remember(made.values())
    return made
