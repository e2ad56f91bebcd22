"""Rounds: small merges of several tables, folded one after the other by the worker and committed together
(docs/decisions/0041). A merge that cannot go on in its round is handed back, and is done again by itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context

from app.catalog.repository import FoldedMerge, WaitingMerge
from app.core.table.history import Snapshot
from app.services.compactions import request_due_compactions
from app.services.executor import MergeSite
from app.services.leases import Done, Lease, tell
from app.services.merges import fold_for_round
from app.storage.folders import at_once
from app.storage.run_files import sync_runs
from app.storage.writable import check_not_gone
from app.telemetry.entries import TaskOutcome
from app.telemetry.logs import about
from app.telemetry.traces import span

logger = logging.getLogger(__name__)


def claim_round(site: MergeSite, owner: str, chosen: Sequence[WaitingMerge]) -> list[Lease]:
    """The leases of those of the merges that nobody else has claimed meanwhile; ``owner`` is of this round only."""
    if not chosen:
        return []
    with site.database.transaction(wakes=False) as repository:
        claimed = repository.rounds.claim(chosen, owner, site.lease_seconds)
    return [Lease(site, one) for one in claimed]


def run_round(site: MergeSite, leases: Sequence[Lease]) -> list[Lease]:
    """Fold claimed small merges and commit them together; those that are committed. The others are handed back."""
    began = time.monotonic()
    with _kept(site, leases):
        folded = {
            lease: one for lease, one in zip(leases, at_once(site.warehouse, _folded, leases), strict=True) if one
        }
        snapshots = _committed(site, [*folded.values()])
    seconds = time.monotonic() - began
    done = [lease for lease in leases if lease.claimed.task.id in snapshots]
    for lease in done:
        with about(merge=lease.claimed.task.id, table=lease.claimed.table.id):
            tell(lease, TaskOutcome.SUCCEEDED, Done(folded[lease].rows, folded[lease].records), seconds)
    for lease in leases:
        if lease.claimed.task.id not in snapshots and not lease.handed_back:
            lease.hand_back()
    return done


def _folded(lease: Lease) -> FoldedMerge | None:
    """What a merge has written; None where it cannot go on here, whatever the reason: who does it by itself tells."""
    claimed = lease.claimed
    ids = {"merge": claimed.task.id, "table": claimed.table.id}
    with about(**ids), span("merge", {**ids, "table": claimed.table.full_name}):
        try:
            runs = fold_for_round(lease)
        except Exception:
            logger.info("merge %s leaves its round", claimed.task.id, exc_info=True)
            return None
    return FoldedMerge(claimed, runs, sum(batch.records for batch in claimed.batches)) if runs else None


def _committed(site: MergeSite, folded: Sequence[FoldedMerge]) -> Mapping[str, Snapshot]:
    """The snapshots of those that could be committed, by merge. Of the others the catalog has nothing."""
    if not folded:
        return {}
    try:
        sync_runs(site.warehouse, [(one.claimed.table.id, run) for one in folded for run in one.runs])
        check_not_gone(site.warehouse)
        with site.database.transaction() as repository:
            made = repository.rounds.commit(folded)
            tables = {one.claimed.task.id: one.claimed.table for one in folded}
            request_due_compactions(repository, [(tables[merge], snapshot) for merge, snapshot in made.items()])
    except Exception:
        logger.warning(
            "%d merges are done again, each by itself: they could not be committed", len(folded), exc_info=True
        )
        return {}
    site.database.remember(made.values())
    return made


@contextmanager
def _kept(site: MergeSite, leases: Sequence[Lease]) -> Iterator[None]:
    """Renews the leases until the body ends, from one thread; one that is lost cannot commit any more."""
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(site.lease_seconds / 4):
            for lease in leases:
                lease.renew_once()

    keeper = threading.Thread(target=copy_context().run, args=(keep,), name="leases", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        ended.set()
        keeper.join()
