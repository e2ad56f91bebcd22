"""``T/lateness``: the number of late records by lane and sender, and their effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from fastapi import Query
from pydantic import Field

from app.api.middleware.routing import Router
from app.api.shared.answers import Answer, EpochMillis, From
from app.api.shared.paths import TABLE_PATH
from app.api.shared.problems import PROBLEM_RESPONSES
from app.api.shared.transactions import Reading, TableDep
from app.services.explaining.lateness import LateLane, LateSender, late_report, parsed_since

router = Router(prefix=TABLE_PATH, tags=["stats"], responses=PROBLEM_RESPONSES)


class LateStep(Answer):
    """Records that were late by up to ``upTo``, and by more than the step before; null: by more than all of them."""

    up_to: float | None
    records: int


class LateRecords(Answer):
    """The late records of one sender."""

    sender: str = Field(description="the name of its token; empty where none was needed")
    records: Annotated[int, From("counts.records")] = Field(description="those that have a sequence of the lane")
    late: Annotated[int, From("counts.late")] = Field(
        description="those that sort before a record of their key that was accepted before them"
    )
    in_merge: Annotated[int, From("counts.in_merge")] = Field(description="of these, before one of the same merge")
    against_older: Annotated[int, From("counts.against_older")] = Field(
        description="of these, only before what was merged earlier"
    )
    changed_nothing: Annotated[int | None, From("counts.changed_nothing")] = Field(
        description="of these, those that changed no column of the lane; null in tables whose rows can be removed"
    )
    too_late: Annotated[int, From("counts.too_late")] = Field(description="of these, beyond sequence.late-horizon")
    unmeasured: Annotated[int, From("counts.unmeasured")] = Field(description="of these, in no step: null, or text")
    largest: Annotated[float | None, From("counts.largest")] = Field(description="by how much the latest one was late")
    steps: list[LateStep]


class Lane(Answer):
    """The late records of one order: that of a sequence group, or the table's sequence.field."""

    sequence: list[str]
    columns: list[str] = Field(description="the columns that it orders")
    measure: Literal["seconds", "number"] | None = Field(
        description="the unit of steps and largest; null where it is unknown"
    )
    horizon: str | None = Field(description="the table's sequence.late-horizon, where it bounds this lane")
    senders: Annotated[list[LateRecords], From(lambda lane: list(_senders(lane)))]


def _senders(lane: LateLane) -> Iterator[LateRecords]:
    yield from (LateRecords.from_value(sender, steps=_steps(lane, sender)) for sender in lane.senders)


def _steps(lane: LateLane, sender: LateSender) -> list[LateStep]:
    bounds = [*lane.steps, None]
    return [LateStep(up_to=up_to, records=n) for up_to, n in zip(bounds, sender.counts.steps, strict=False)]


class Lateness(Answer):
    """The late records of the merges from ``since`` on: ``counted`` of ``merges``, which folded ``records``."""

    since: EpochMillis | None = Field(description="when the first of them ended")
    merges: int
    counted: int = Field(description="those with counts: a merge is counted soon after it")
    records: int
    exact: bool = Field(description="whether all keys were counted; else the counts are estimated from a share of them")
    lanes: list[Lane]


@router.get("/lateness", operation_id="getLateness")
def get_lateness(
    table: TableDep,
    repository: Reading,
    since: Annotated[
        str | None, Query(description="a date and time with its offset: merges that ended then or later")
    ] = None,
) -> Lateness:
    """Return how many records came late, by how much, from whom, and how many of them changed nothing.

    Counts are by lane: each sequence group is a lane, and so is the table's own sequence. They cover the newest 5,000
    listed merges (`catalog.history-retained`). A table without sequences has no lanes, and no late records.
    """
    return Lateness.from_value(late_report(repository, table, parsed_since(since)))
