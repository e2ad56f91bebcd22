"""The merge worker: claims pending tasks and runs them."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from app.catalog.repository import WaitingMerge
from app.catalog.shared.transaction import AnyRow
from app.core.errors import KeyfoldError
from app.core.plan.merging.late_lanes import lanes_of
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.history import TaskKind
from app.services.explaining.history import file_histories
from app.services.merging.compaction_rounds import ROUND_TABLES, is_small_table, run_small_compactions
from app.services.merging.compactions import request_failed_compactions, run_compaction
from app.services.merging.giving_way import GivingWay
from app.services.merging.held_leases import HeldLeases
from app.services.merging.leases import Lease, claim_one
from app.services.merging.merge_choice import choose
from app.services.merging.merge_rounds import claim_round, run_round
from app.services.merging.merges import request_due_merges, run_merge
from app.services.merging.spark_trial import try_spark
from app.services.publishing.publications import Publisher, request_due_publications
from app.services.shared.executor import MergeSite
from app.services.upkeep.forgettings import end_forgettings
from app.services.upkeep.forgotten_keys import Forgetter
from app.services.upkeep.late_counting import LateCounting
from app.services.upkeep.scrubs import look_again, scrub
from app.services.upkeep.sweeps import KEYS_KNOWN, mark_run, sweep

logger = logging.getLogger(__name__)
SWEEP_SECONDS = 300.0
FILE_SECONDS = 60.0  # records that are in no history file yet are read batch by batch for each explanation
# From this many merged batches of a table on, a history file is worth its 10 ms of CPU. Sweeps file fewer.
FILE_BATCHES = 16
# A stopping worker keeps this share of its time for handing back its tasks.
HAND_BACK_SHARE = 0.3
# An idle worker sees commits of other machines after this time.
IDLE_SECONDS = 1.0
ALONE_SECONDS = 10.0  # the same if no other machine commits and no batch waits: the retry of a failed compaction
# A version that waits for an older one is at most this late.
PUBLISH_SECONDS = 3.0
# An idle worker sees keys to be forgotten after this time.
FORGET_SECONDS = 10.0
# Time between two checks for due staging areas.
LOOK_SECONDS = 0.1
# Pause after a check without merges: every commit causes a check, even one of a batch.
REST_SECONDS = 0.02
# Time between two checks for small merges while all places are taken.
ROOM_SECONDS = 0.1
# Time between two checks for upkeep: otherwise each commit of a merge would cause one.
UPKEEP_SECONDS = 0.2


@dataclass(frozen=True)
class Upkeep:
    """The settings of a worker's other work: the retention of Idempotency-Keys, the rate of scrubs (0: none), whether
    Spark is tried before merging (``merging.spark_trial``), and when a refused Spark is retried.
    """

    keys_known: timedelta = KEYS_KNOWN
    scrub_bytes_per_second: int = 0
    tries_spark: bool = False
    retry_seconds: float = 60.0


# Pause before a failed step is retried.
FAILED_SECONDS = 1.0
# The log repeats the same reason after this time.
LOG_SECONDS = 60.0
NO_SCRUB = Upkeep()


class Worker:
    """Merges due tables, several at a time, compacts and sweeps, until it is stopped.

    One thread claims merges, and another compactions. Small ones share jobs; each large one has its thread.
    Publications, forgetting of keys, counts of late records, and scrubs have a thread each.
    """

    def __init__(self, site: MergeSite, merges_at_once: int = 1, upkeep: Upkeep = NO_SCRUB) -> None:
        self.upkeep = upkeep
        self.site = site
        self.merges_at_once = merges_at_once
        self.name = f"worker-{uuid.uuid4().hex[:12]}"
        self._stopped = threading.Event()
        self._held = HeldLeases()
        self._giving_way = GivingWay()
        self._idle_seconds = ALONE_SECONDS if site.database.embedded else IDLE_SECONDS
        self._large: threading.Thread | None = None
        self._next_look = self._next_due = float("-inf")
        self._next_lag = float("-inf")
        self._trusted = threading.Event()
        self.refused: tuple[str, ...] = ()
        self._trial_failure = ""  # the reason that was logged
        self._publisher = Publisher(site.database, site.warehouse)
        self._forgetter = Forgetter(site, partial(mark_run, site.warehouse))
        self._late = LateCounting(site)
        loops = {"merge": self.run, "compact": self._compact, "publish": self._publish, "sweep": self._sweep}
        loops["forget"] = self._forget
        loops["late"] = lambda: self._late.run(self._stopped)
        if upkeep.scrub_bytes_per_second:
            loops["scrub"] = self._scrub
        self._threads = [
            threading.Thread(target=loop, name=f"{self.name}-{name}", daemon=True) for name, loop in loops.items()
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """Stop after the running tasks; a task that takes longer is handed back, so that the next worker begins it at
        once. Return within about the time.
        """
        deadline = time.monotonic() + timeout_seconds
        self._stopped.set()
        self.site.database.wake()
        late = self._held.end(timeout_seconds * (1 - HAND_BACK_SHARE))
        back = [threading.Thread(target=lease.hand_back, name="hand-back", daemon=True) for lease in late]
        for thread in back:
            thread.start()
        merging, *others = self._threads
        # While it waits for the first answer of Spark it holds nothing, and ends with Spark.
        for thread in (*back, *others, *([merging] if self._trusted.is_set() else [])):
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))

    def run(self) -> None:
        """Start merges until stopped; wait for a catalog that does not answer."""
        self._warm_up()
        while not self._stopped.is_set() and not self._passed_trial():
            self._stopped.wait(self.upkeep.retry_seconds if self.refused else IDLE_SECONDS)
        self._repeat(self._start_merges, REST_SECONDS)

    @property
    def trusts(self) -> bool | None:
        """Whether Spark is compatible; None before the trial."""
        return True if self._trusted.is_set() else False if self.refused else None

    def _passed_trial(self) -> bool:
        """Return whether Spark passed its trial, if there is one. Until then nothing is merged, compacted or
        forgotten.
        """
        faults: tuple[str, ...] = ()
        if self.upkeep.tries_spark:
            try:
                faults = try_spark(self.site.warehouse, self.site.executor)
            except Exception as error:
                if str(error) != self._trial_failure:
                    logger.warning("Spark could not be tried, nothing is merged until it is: %s", error)
                self._trial_failure = str(error)
                return False
        if faults and faults != self.refused:
            problem = "the Spark server at KEYFOLD_SPARK_REMOTE is not compatible; merges are paused"
            logger.error("%s: %s. keyfold check-spark tries it again", problem, "; ".join(faults))
        self.refused = faults
        if not faults:
            self._trusted.set()
        return not faults

    def _start_merges(self) -> float:
        """Request due merges, start those that have a place, and run a round of small merges. Return the seconds until
        the next check.
        """
        now = time.monotonic()
        if now >= self._next_look:
            due = request_due_merges(self.site.database)
            self._next_look = now + LOOK_SECONDS
            self._next_due = now + (
                self._idle_seconds if due.next_seconds is None else min(due.next_seconds, IDLE_SECONDS)
            )
        else:  # commits since the last check may be due
            self._next_due = self._next_look
        with self.site.database.reading() as repository:
            waiting = repository.rounds.waiting()
        choice = choose(waiting, self.merges_at_once - self._held.merging())
        started = sum(self._start(waiting_merge) for waiting_merge in choice.apart)
        if choice.together:
            started += self._round(choice.together)
        elif waiting and not started:
            self._held.wait_for_place(self.merges_at_once, ROOM_SECONDS)  # small ones may be due, which need none
        return 0.0 if started else min(self._idle_seconds, max(0.0, self._next_due - time.monotonic()))

    def _start(self, waiting_merge: WaitingMerge) -> bool:
        """Start a merge in a new thread; return whether it could be claimed."""
        lease = self._held.hold(claim_one(self.site, self._owner(), waiting_merge.task_id, waiting_merge.table.id))
        if lease is None:
            return False
        threading.Thread(target=self._work, args=(lease, run_merge), name=f"{self.name}-job", daemon=True).start()
        return True

    def _round(self, chosen: Sequence[WaitingMerge]) -> int:
        """Run small merges together; return how many could be claimed."""
        claimed = claim_round(self.site, self._owner(), chosen)
        leases = [lease for claim in claimed if (lease := self._held.hold(claim)) is not None]
        try:
            done = run_round(self.site, leases)
        finally:
            self._held.let_go(leases)
        for lease in done:
            self._note_late(lease)
        return len(leases)

    def _compact(self) -> None:
        self._repeat(self._compact_next, UPKEEP_SECONDS)

    def _compact_next(self) -> float:
        """Run compactions; return the seconds until the next check: not 0, since their commits wake this thread, and
        merges need Spark's workers, too.
        """
        if self._trusted.is_set() and not self._stopped.is_set() and self._giving_way.may_begin(self.site.database):
            with self.site.database.reading() as repository:
                waiting = repository.claimed_tasks.compactions()
                small = [row for row in waiting if is_small_table(repository, row.table_id)]
            self._compact_together(small[:ROUND_TABLES])
            self._compact_large([row for row in waiting if row not in small])
        return self._idle_seconds

    def _compact_together(self, chosen: Sequence[AnyRow]) -> None:
        claimed = (claim_one(self.site, self._owner(), row.id, row.table_id) for row in chosen)
        leases = [lease for claim in claimed if (lease := self._held.hold(claim)) is not None]
        try:
            if leases:
                with self._giving_way.compacting():
                    run_small_compactions(self.site, leases)
        finally:
            self._held.let_go(leases)

    def _compact_large(self, waiting: Sequence[AnyRow]) -> None:
        """Begin one compaction of a large table in a new thread, if none is under way."""
        if self._large is not None and self._large.is_alive():
            return
        for row in waiting:
            lease = self._held.hold(claim_one(self.site, self._owner(), row.id, row.table_id))
            if lease is not None:
                name = f"{self.name}-compaction"
                self._large = threading.Thread(target=self._compact_alone, args=(lease,), name=name, daemon=True)
                self._large.start()
                return

    def _compact_alone(self, lease: Lease) -> None:
        with self._giving_way.compacting():
            self._work(lease, run_compaction)

    def _publish(self) -> None:
        self._repeat(self._publish_next, UPKEEP_SECONDS)

    def _publish_next(self) -> float:
        if time.monotonic() >= self._next_lag:
            request_due_publications(self.site.database)
            self._next_lag = time.monotonic() + IDLE_SECONDS
        return 0.0 if self._publisher.publish() else min(self._idle_seconds, PUBLISH_SECONDS)

    def _forget(self) -> None:
        self._repeat(self._forget_next, UPKEEP_SECONDS)

    def _forget_next(self) -> float:
        if not self._trusted.is_set():
            return IDLE_SECONDS
        return 0.0 if self._forgetter.forget() else FORGET_SECONDS

    def _owner(self) -> str:
        """Return an owner name for one claim, see ``claim_one``."""
        return f"{self.name}-{uuid.uuid4().hex[:8]}"

    def _work(self, lease: Lease, run: Callable[[Lease], None]) -> None:
        try:
            run(lease)
        finally:
            self._held.let_go([lease])
            self.site.database.wake()  # another merge may start
        if lease.claimed.task.kind is TaskKind.MERGE:
            self._note_late(lease)

    def _note_late(self, lease: Lease) -> None:
        if lanes_of(compile_plan(lease.claimed.table.schema)):  # otherwise no record can be late
            self._late.note(lease.claimed.task)

    def _repeat(self, work: Callable[[], float], rest_seconds: float) -> None:
        """Repeat ``work``, which returns after how many seconds at the latest it must run again. It runs earlier if a
        process of this machine commits, but not before ``rest_seconds``.
        """
        logged, again = "", float("-inf")
        while not self._stopped.is_set():
            seen, pause, rest = self.site.database.commits, self._idle_seconds, rest_seconds
            try:
                pause = work()
                if not pause:
                    continue
            except KeyfoldError as error:
                rest = max(rest, FAILED_SECONDS)  # failed commits wake the thread, too
                if str(error) != logged or time.monotonic() >= again:
                    logger.warning("the worker waits: %s", error)
                    logged, again = str(error), time.monotonic() + LOG_SECONDS
            except Exception:
                rest = max(rest, FAILED_SECONDS)
                logger.exception("the worker goes on after an error")
            if not self._stopped.wait(rest):
                self.site.database.wait_for_commit(seen, pause - rest)

    def _warm_up(self) -> None:
        """Run a first query: on a new Spark server it takes seconds, which the first merge must not wait for."""
        try:
            self.site.executor.warm_up()
        except Exception as error:
            if not self._stopped.is_set():
                known = isinstance(error, KeyfoldError)
                logger.warning("Spark could not be warmed up; merges retry: %s", error, exc_info=not known)

    def _sweep(self) -> None:
        swept = time.monotonic()
        while not self._stopped.wait(FILE_SECONDS):
            try:
                if time.monotonic() - swept < SWEEP_SECONDS - FILE_SECONDS / 2:
                    file_histories(self.site.database, self.site.warehouse, FILE_BATCHES)
                    continue
                swept = time.monotonic()
                sweep(self.site.database, self.site.warehouse, keys_known=self.upkeep.keys_known)
                if self._trusted.is_set():
                    end_forgettings(self.site)
                look_again(self.site.database, self.site.warehouse)
                request_failed_compactions(self.site.database)
            except Exception:
                logger.warning("the sweep failed and is retried later", exc_info=True)

    def _scrub(self) -> None:
        scrub(self.site.database, self.site.warehouse, self.upkeep.scrub_bytes_per_second, self._stopped.wait)
