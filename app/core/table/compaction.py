"""The universal compaction policy: which neighbouring runs are combined when (docs/merges.md; Paimon's option names).

It bounds three costs against each other: runs that a lookup touches, bytes written over and over, and bytes that newer
runs make obsolete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from app.core.table.options.parsed import TableOptions

STOP_TRIGGER: Final = "num-sorted-run.stop-trigger"
MERGES_WAIT = timedelta(minutes=5)
"""For how long merges of a table wait for one compaction at most: slow lookups are better than rows that never come."""


@dataclass(frozen=True)
class Stop:
    """Why merges of a table wait: a partition has ``runs``, at least its stop ``trigger``, and the compaction
    ``compaction_id``, requested at ``since``, has not ended. They continue when it has, or at ``until``.
    """

    compaction_id: str
    runs: int
    trigger: int
    since: datetime

    @property
    def until(self) -> datetime:
        """When merges go on even if the compaction has not ended."""
        return self.since + MERGES_WAIT

    def holds(self, now: datetime) -> bool:
        """Return whether merges wait at ``now``. A request in the future was noted before the clock was set back:
        it is unknown how long ago that was.
        """
        return self.runs >= self.trigger and self.since <= now < self.until


@dataclass(frozen=True)
class CompactionPolicy:
    """When runs are combined: ``trigger`` of them, or newer ones that together are ``size_amplification_percent`` of
    the oldest; ``size_ratio_percent`` is how much larger the next older run may be and still be taken along.
    """

    trigger: int
    size_amplification_percent: int
    size_ratio_percent: int

    @classmethod
    def from_options(cls, options: TableOptions) -> CompactionPolicy:
        """Return the policy that a table's options state."""
        return cls(
            options["num-sorted-run.compaction-trigger"],
            options["compaction.max-size-amplification-percent"],
            options["compaction.size-ratio"],
        )

    def pick(self, sizes: Sequence[int]) -> int:
        """Return how many of the newest runs to combine now; ``sizes`` are their bytes, oldest first. 0 means none."""
        if len(sizes) < max(self.trigger, 2):
            return 0
        if sum(sizes[1:]) * 100 > self.size_amplification_percent * sizes[0]:
            return len(sizes)
        similar = self._extended(sizes, 1)
        if similar > 1:
            return similar
        if len(sizes) > self.trigger:
            return self._extended(sizes, len(sizes) - self.trigger + 1)
        return 0

    def _extended(self, sizes: Sequence[int], count: int) -> int:
        """``count`` newest runs, and each next older one that is not much larger than those already taken."""
        taken = sum(sizes[len(sizes) - count :])
        while count < len(sizes):
            older = sizes[len(sizes) - count - 1]
            if taken * (100 + self.size_ratio_percent) < older * 100:
                break
            taken += older
            count += 1
        return count


def stop_trigger(options: TableOptions) -> int | None:
    """Return at how many runs of one partition merges wait for a compaction; None if they never wait, the default.

    As in Paimon, never fewer than start a compaction (docs/merges.md).
    """
    stop: int | None = options[STOP_TRIGGER]
    return None if stop is None else max(options["num-sorted-run.compaction-trigger"], stop)
