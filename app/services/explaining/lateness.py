"""Late records: counted in a thread of the worker after each merge, by lane and sender, and reported by table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate, takewhile
from queue import Empty, Full, Queue
from typing import Any, Final

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import Conflict, FaultCode, Invalid, KeyfoldError, NotFound, Violation
from app.core.plan.merging.late_lanes import Lane, lanes_of
from app.core.plan.merging.merge_plan import compile_plan
from app.core.rules.lateness import horizon_text
from app.core.table.history import Batch, CatalogTask, Table
from app.core.table.upkeep.damage import DamagedFile
from app.core.table.upkeep.late_records import STEPS, LateRecords
from app.files.layout import Warehouse
from app.services.explaining.comparisons import Compared, of_merge
from app.storage.history.late_records import Merged, count_late

logger = logging.getLogger(__name__)
# At most this many records of a merge are counted, in whole batches.
MOST_RECORDS: Final = 2_000_000
MOST_OLDER_ROWS: Final = 2_000_000  # beyond, a share of the keys is compared with older runs
# A report counts at most this many merges.
MOST_MERGES: Final = 5_000
# At most this many senders of a merge are counted separately.
MOST_SENDERS: Final = 20
OTHERS: Final = "(others)"  # a name that no token can have


def count_late_records(
    database: CatalogDatabase,
    warehouse: Warehouse,
    table_id: str,
    merge_id: str,
    most_older_rows: int = MOST_OLDER_ROWS,
) -> bool:
    """Count the late records of a merge and store the counts with it. Return whether there was anything to count.

    Nothing is counted if the merge has not committed, the table has no sequences, or files are gone by now.
    """
    with database.reading() as repository:
        table = repository.tables.find(table_id)
        merged = None if table is None else _merge_of(repository, table, merge_id)
    if merged is None or not merged.batches:
        return False
    lanes = lanes_of(compile_plan(merged.schema))
    if not lanes:
        return False
    try:
        counted = count_late(warehouse, merged, lanes, most_older_rows)
    except DamagedFile as error:
        logger.info("late records of merge %s are not counted: %s", merge_id, error)
        return False
    members = [
        {
            "sequence": _ids(merged, lane),
            "senders": {name: late_records.to_json() for name, late_records in _few(of_lane).items()},
        }
        for lane, of_lane in zip(lanes, counted.counts, strict=True)
    ]
    records = sum(batch.records for batch in merged.batches)
    with database.transaction(wakes=False) as repository:
        repository.late_merges.note(merge_id, {"share": counted.share, "records": records, "lanes": members})
    return True


def _few(senders: Mapping[str, LateRecords]) -> Mapping[str, LateRecords]:
    """Return the counts of the senders with most records, and those of all others together, since they are stored with
    each merge.
    """
    if len(senders) <= MOST_SENDERS:
        return senders
    ordered = sorted(senders.items(), key=lambda one: (-one[1].records, one[0]))
    rest = [counts for _, counts in ordered[MOST_SENDERS - 1 :]]
    return {**dict(ordered[: MOST_SENDERS - 1]), OTHERS: sum(rest[1:], rest[0])}


def _ids(merged: Merged, lane: Lane) -> list[int]:
    """Return the stable name of a lane: the ids of its sequence fields."""
    return [merged.schema.by_name[name].id for name in lane.sequence]


def _merge_of(repository: Repository, table: Table, merge_id: str) -> Merged | None:
    """Return the batches that the merge folded, and its base; None if it has not committed, or its snapshot has
    expired.
    """
    try:
        compared = of_merge(repository, table, merge_id)
    except (NotFound, Conflict):
        return None
    batches = first_batches(repository.batches.of_merge(merge_id))
    return _merged(repository, compared, batches)


def first_batches(batches: Sequence[Batch], most: int = MOST_RECORDS) -> Sequence[Batch]:
    """Return the first batches with records, up to ``most`` records in all. Later batches cannot be counted without
    those before them.
    """
    sums = accumulate(batch.records for batch in batches)
    some = takewhile(lambda one: one[1] <= most, zip(batches, sums, strict=True))
    return [batch for batch, _ in some if batch.records]


def _merged(repository: Repository, compared: Compared, batches: Sequence[Batch]) -> Merged:
    table, schemas = compared.view.table, dict(compared.view.schemas)
    for number in {batch.schema_id for batch in batches} - schemas.keys():
        schemas[number] = repository.tables.schema_at(table.id, number)
    before = {run.id for run in compared.before}
    newer = [run for run in compared.after if run.id not in before]
    return Merged(table.id, table.schema, batches, newer, compared.before, schemas)


@dataclass(frozen=True)
class LateSender:
    """The late records of one sender, by the name of its token; empty if none was needed."""

    sender: str
    counts: LateRecords


@dataclass(frozen=True)
class LateLane:
    """The late records of one lane, by sender.

    ``measure`` is the unit of lateness, ``seconds`` or ``number`` (the difference of two numbers); None if it cannot
    be measured. ``horizon`` is the table's ``sequence.late-horizon`` as text. ``steps`` are bounds in the unit of
    ``measure``: ``LateRecords.steps`` counts the records up to each.
    """

    sequence: Sequence[str]
    columns: Sequence[str]
    measure: str | None
    horizon: str | None
    steps: Sequence[float]
    senders: Sequence[LateSender]


@dataclass(frozen=True)
class LateReport:
    """The late records of the merges since ``since``, the end of the first of them: ``counted`` of ``merges`` merges,
    which folded ``records``. ``exact``: all their keys were compared with older runs; else a share of them.
    """

    since: datetime | None
    merges: int
    counted: int
    records: int
    exact: bool
    lanes: Sequence[LateLane]


def late_report(repository: Repository, table: Table, since: datetime | None) -> LateReport:
    """Return the counts of late records in the table, without lanes that it no longer has."""
    totals: dict[tuple[int, ...], dict[str, LateRecords]] = {}
    merges = counted = records = 0
    begun: datetime | None = None
    exact = True
    for merge in repository.late_merges.since(table.id, since, MOST_MERGES):
        merges, begun = merges + 1, merge.finished_at
        if merge.lateness is not None:
            counted, records = counted + 1, records + merge.lateness["records"]
            exact = exact and merge.lateness["share"] == 1
            for lane in merge.lateness["lanes"]:
                _add(totals.setdefault(tuple(lane["sequence"]), {}), lane["senders"])
    lanes = [_late_lane(table, lane, totals) for lane in lanes_of(compile_plan(table.schema))]
    return LateReport(begun, merges, counted, records, exact, lanes)


def _add(totals: dict[str, LateRecords], senders: Mapping[str, Any]) -> None:
    """Add the counts of an older merge to those of later ones."""
    for name, body in senders.items():
        counts = LateRecords.from_json(body)
        totals[name] = counts + totals[name] if name in totals else counts


def _late_lane(table: Table, lane: Lane, totals: Mapping[tuple[int, ...], Mapping[str, LateRecords]]) -> LateLane:
    ids = tuple(table.schema.by_name[name].id for name in lane.sequence)
    return LateLane(
        lane.sequence,
        lane.columns,
        lane.measure,
        None if lane.horizon is None else horizon_text(lane.horizon),
        STEPS.get(lane.measure or "", ()),
        [LateSender(name, counts) for name, counts in sorted(totals.get(ids, {}).items())],
    )


def parsed_since(text: str | None) -> datetime | None:
    """Return the time in UTC; None if there is no text. Raise ``Invalid`` if it is not a time with an offset."""
    if text is None:
        return None
    try:
        read = datetime.fromisoformat(text)
        if read.tzinfo is not None:
            return read.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    message = f"since {text[:50]!r} is not a date and time with an offset"
    fix = "send one as 2026-03-01T10:00:00Z (the plus of an offset is %2B in a URL)"
    raise Invalid(message, violations=[Violation("/since", FaultCode.BAD_TIMESTAMP, message, fix)])


MOST_WAITING: Final = 1_000  # merges that wait; more that come at once are not counted
# The work ends within this time after a stop is requested.
LOOK_SECONDS: Final = 1.0


class LateCounting:
    """Counts the late records of each merge that ``note`` gets. Safe to share between threads."""

    def __init__(self, database: CatalogDatabase, warehouse: Warehouse) -> None:
        self._database = database
        self._warehouse = warehouse
        self._waiting: Queue[CatalogTask] = Queue(MOST_WAITING)

    def note(self, merge: CatalogTask) -> None:
        """Queue a finished merge for counting."""
        try:
            self._waiting.put_nowait(merge)
        except Full:
            logger.info("late records of merge %s are not counted: too many merges wait for it", merge.id)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Count until ``stopped``; merges that still wait are not counted."""
        while not stopped():
            try:
                merge = self._waiting.get(timeout=LOOK_SECONDS)
            except Empty:
                continue
            self._count(merge)

    def _count(self, merge: CatalogTask) -> None:
        try:
            count_late_records(self._database, self._warehouse, merge.table_id, merge.id)
        except KeyfoldError as error:
            logger.warning("late records of merge %s are not counted: %s", merge.id, error)
        except Exception:
            logger.exception("late records of merge %s are not counted", merge.id)
