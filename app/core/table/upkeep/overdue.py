"""Overdue tables: those whose oldest staged batch waits longer than ``merge.max-staleness`` allows, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from app.core.table.history import Table

ALLOWANCE: Final = timedelta(seconds=1)
"""What a merge may take that begins when it is due: a batch is overdue that waits so much longer."""


class OverdueReason(StrEnum):
    """Why a table is overdue: the first of these reasons that holds."""

    FAILS = "fails"  # its last merge failed; it is retried, with longer pauses each time
    MERGING = "merging"  # a merge that has the batch runs, and takes longer than that
    FORGETTING = "forgetting"  # keys are taken out of its files first
    COMPACTION = "compaction"  # the table has too many runs, and merges wait for its compaction first
    SPARK = "spark"  # the Spark of this service does not answer, has not started, or was refused
    WAITING = "waiting"  # there is more to merge than is merged: its merge waits for those that were due before


EXPLAINED: Final[Mapping[OverdueReason, str]] = {
    OverdueReason.FAILS: "its last merge failed and is retried; GET …/merges shows why",
    OverdueReason.MERGING: "its merge runs, and takes longer than that",
    OverdueReason.FORGETTING: "keys are being forgotten, and merges wait for that",
    OverdueReason.COMPACTION: "it has num-sorted-run.stop-trigger runs, and merges wait for a compaction",
    OverdueReason.SPARK: "Spark does not answer yet, or not any more",
    OverdueReason.WAITING: "other merges are due before it; more workers, or a longer merge.max-staleness, would help",
}
"""In words, and what to do."""


@dataclass(frozen=True)
class Wait:
    """How long the oldest of a table's staged batches waits, and what is known of its merges."""

    table: Table
    oldest_accepted_at: datetime
    fails: bool
    merging: bool
    forgetting: bool
    stopped: bool = False


@dataclass(frozen=True)
class Overdue:
    """By how much a table misses its ``merge.max-staleness`` now, and why."""

    table: Table
    by: timedelta
    reason: OverdueReason

    @property
    def explained(self) -> str:
        """Why, in words."""
        return EXPLAINED[self.reason]


def overdue(wait: Wait, now: datetime, *, spark_answers: bool) -> Overdue | None:
    """Return whether the table is overdue ``now``. A batch from the future was accepted before the
    clock was set back.
    """
    by: timedelta = now - wait.oldest_accepted_at - wait.table.schema.parsed["merge.max-staleness"]
    return Overdue(wait.table, by, _reason(wait, spark_answers)) if by > ALLOWANCE else None


def _reason(wait: Wait, spark_answers: bool) -> OverdueReason:
    so = {
        OverdueReason.FAILS: wait.fails,
        OverdueReason.MERGING: wait.merging,
        OverdueReason.FORGETTING: wait.forgetting,
        OverdueReason.COMPACTION: wait.stopped,
        OverdueReason.SPARK: not spark_answers,
        OverdueReason.WAITING: True,
    }
    return next(reason for reason in OverdueReason if so[reason])
