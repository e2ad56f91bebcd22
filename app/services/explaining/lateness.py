"""Reports the late records of a table, as they were counted after its merges, by lane and sender."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from app.catalog.repository import Repository
from app.core.errors import FaultCode, Invalid, Violation
from app.core.plan.merging.late_lanes import Lane, lanes_of
from app.core.plan.merging.merge_plan import compile_plan
from app.core.rules.lateness import horizon_text
from app.core.table.history import Table
from app.core.table.upkeep.late_records import STEPS, LateRecords

# A report counts at most this many merges.
MOST_MERGES: Final = 5_000


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
    which folded ``records``. ``exact``: all their keys were counted; else a share of them.
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
