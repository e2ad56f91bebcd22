"""Counts late records after merges: by tasks on the executor, by lane and sender, stored with each merge."""

from __future__ import annotations

import logging
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from queue import Empty, Full, Queue
from typing import Any, Final

from app.catalog.repository import Repository
from app.core.errors import Conflict, DamagedCatalog, KeyfoldError, NotFound
from app.core.plan.merging.late_lanes import Lane, lanes_of
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.history import Batch, CatalogTask
from app.core.table.schema import TableSchema
from app.core.table.upkeep.late_records import LateRecords
from app.kernel.tasks import Job, Result, Task
from app.services.explaining.comparisons import Compared, of_merge
from app.services.merging.task_results import plan_of
from app.services.shared.executor import MergeSite

logger = logging.getLogger(__name__)
# At most this many records of a merge are counted, in whole batches.
MOST_RECORDS: Final = 2_000_000
MOST_OLDER_ROWS: Final = 2_000_000  # beyond, a share of the keys is compared with older runs
# At most this many senders of a merge are counted separately.
MOST_SENDERS: Final = 20
OTHERS: Final = "(others)"  # a name that no token can have
MOST_WAITING: Final = 1_000  # merges that wait; more that come at once are not counted
# The merges of this time share a job.
GATHER_SECONDS: Final = 5.0


@dataclass(frozen=True)
class _Counting:
    """A merge of ``records``, the tasks that count them, and its lanes under the schema of its commit."""

    merge_id: str
    schema: TableSchema
    lanes: Sequence[Lane]
    records: int
    tasks: Sequence[Task]

    def stored(self, results: Sequence[Result]) -> Mapping[str, Any]:
        """Return the counts as the catalog has them, extrapolated to all keys.

        A lane has the ids of its sequence fields, which are stable.
        """
        by_lane: dict[int, dict[str, LateRecords]] = defaultdict(lambda: defaultdict(LateRecords))
        for late in (late for result in results for late in result.late):
            by_lane[late.lane][late.sender] += late.counts
        share = sum(task.share for task in self.tasks)
        lanes = [
            {
                "sequence": [self.schema.by_name[name].id for name in lane.sequence],
                "senders": {s: counts.times(1 / share).to_json() for s, counts in _few(by_lane[number]).items()},
            }
            for number, lane in enumerate(self.lanes)
        ]
        return {"share": share, "records": self.records, "lanes": lanes}


def count_late_records(site: MergeSite, merges: Sequence[CatalogTask], most_older_rows: int = MOST_OLDER_ROWS) -> int:
    """Count the late records of merges in one job, store the counts, and return how many merges were counted.

    A merge is not counted if it has not committed, its table has no sequences, or files are gone by now.
    """
    countings: list[_Counting] = []
    for merge in merges:
        try:
            countings += _countings(site, merge, most_older_rows)
        except DamagedCatalog as error:  # of one table
            logger.warning("late records of merge %s are not counted: %s", merge.id, error)
    if not countings:
        return 0
    tasks = tuple(task for counting in countings for task in counting.tasks)
    job = Job(site.warehouse.address, f"late records of {len(countings)} merges", tasks)
    results = iter(site.executor.run(f"late-{uuid.uuid4().hex}", job, lambda *_: None))
    counted = []
    for counting in countings:
        done = [next(results) for _ in counting.tasks]
        failure = next((result.failure for result in done if result.failure is not None), None)
        if failure is None:
            counted.append((counting.merge_id, counting.stored(done)))
        else:
            logger.info("late records of merge %s are not counted: %s", counting.merge_id, failure.message)
    with site.database.transaction(wakes=False) as repository:
        for merge_id, counts in counted:
            repository.late_merges.note(merge_id, counts)
    return len(counted)


def _countings(site: MergeSite, merge: CatalogTask, most_older_rows: int) -> Iterator[_Counting]:
    """Yield the counting of a merge, if there is anything to count."""
    with site.database.reading() as repository:
        compared = _compared(repository, merge)
        batches = first_batches(repository.batches.of_merge(merge.id)) if compared else ()
    if compared is None or not batches:
        return
    table = compared.view.table
    lanes = lanes_of(compile_plan(table.schema))
    if not lanes:
        return
    before = {run.id for run in compared.before}
    touched = {run.partition for run in compared.after if run.id not in before}
    older = [run for run in compared.before if run.partition in touched]
    plan = plan_of(site, table, {batch.schema_id for batch in batches} | {run.schema_id for run in older})
    tasks = plan.late_records(batches, older, most_older_rows)
    yield _Counting(merge.id, table.schema, lanes, sum(batch.records for batch in batches), tasks)


def _compared(repository: Repository, merge: CatalogTask) -> Compared | None:
    """Return the runs before and after a merge; None if it has not committed, or its snapshot has expired."""
    table = repository.tables.find(merge.table_id)
    try:
        return None if table is None else of_merge(repository, table, merge.id)
    except (NotFound, Conflict):
        return None


def first_batches(batches: Sequence[Batch], most: int = MOST_RECORDS) -> Sequence[Batch]:
    """Return the first batches with records, up to ``most`` records in all. Later batches cannot be counted without
    those before them.
    """
    sums = accumulate(batch.records for batch in batches)
    some = takewhile(lambda pair: pair[1] <= most, zip(batches, sums, strict=True))
    return [batch for batch, _ in some if batch.records]


def _few(senders: Mapping[str, LateRecords]) -> Mapping[str, LateRecords]:
    """Return the counts of the senders with most records, and those of all others together, since they are stored with
    each merge.
    """
    if len(senders) <= MOST_SENDERS:
        return senders
    ordered = sorted(senders.items(), key=lambda pair: (-pair[1].records, pair[0]))
    rest = [counts for _, counts in ordered[MOST_SENDERS - 1 :]]
    return {**dict(ordered[: MOST_SENDERS - 1]), OTHERS: sum(rest[1:], rest[0])}


class LateCounting:
    """Counts the late records of each merge that ``note`` gets. Safe to share between threads."""

    def __init__(self, site: MergeSite) -> None:
        self._site = site
        self._waiting: Queue[CatalogTask] = Queue(MOST_WAITING)

    def note(self, merge: CatalogTask) -> None:
        """Queue a finished merge for counting."""
        try:
            self._waiting.put_nowait(merge)
        except Full:
            logger.info("late records of merge %s are not counted: too many merges wait for it", merge.id)

    def run(self, stopped: threading.Event) -> None:
        """Count until ``stopped``; merges that still wait are not counted."""
        while not stopped.wait(GATHER_SECONDS):
            merges = [*self._taken()]
            try:
                count_late_records(self._site, merges)
            except KeyfoldError as error:
                logger.warning("late records of %d merges are not counted: %s", len(merges), error)
            except Exception:
                logger.exception("late records of %d merges are not counted", len(merges))

    def _taken(self) -> Iterator[CatalogTask]:
        """Yield the merges that wait."""
        try:
            while True:
                yield self._waiting.get_nowait()
        except Empty:
            return
