"""How many of a merge's records came late, of one sender, in one lane: counts that add up, and their JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

STEPS: Final[Mapping[str, Sequence[float]]] = {
    "seconds": (1, 10, 60, 600, 3_600, 21_600, 86_400, 604_800),
    "number": (1, 10, 100, 1_000, 10_000, 1_000_000, 1_000_000_000),
}
"""Up to how much a record is late, by measure; what is later than the last of them is in one more step."""


@dataclass(frozen=True)
class LateRecords:
    """The counts of late records among the ``records`` that take part in a lane.

    ``in_merge`` are below an earlier record of the same merge, ``against_older`` only below older merges.
    ``changed_nothing`` is None if it is not known. ``too_late`` are beyond the table's horizon. ``steps`` are the
    counts by how late they were (``STEPS``), ``unmeasured`` the others. ``largest`` is by how much the latest was late.
    """

    records: int = 0
    in_merge: int = 0
    against_older: int = 0
    changed_nothing: int | None = 0
    too_late: int = 0
    unmeasured: int = 0
    largest: float | None = None
    steps: tuple[int, ...] = ()

    def __add__(self, other: LateRecords) -> LateRecords:
        """Add both. A lane whose measure changed has another number of steps: then the later ones stand."""
        nothing = (self.changed_nothing, other.changed_nothing)
        largest = [late_records.largest for late_records in (self, other) if late_records.largest is not None]
        alike = len(self.steps) == len(other.steps)
        return LateRecords(
            self.records + other.records,
            self.in_merge + other.in_merge,
            self.against_older + other.against_older,
            None if None in nothing else sum(count or 0 for count in nothing),
            self.too_late + other.too_late,
            self.unmeasured + other.unmeasured,
            max(largest, default=None),
            tuple(map(sum, zip(self.steps, other.steps, strict=True))) if alike else other.steps or self.steps,
        )

    def times(self, weight: float) -> LateRecords:
        """Return the counts of ``weight`` times as many records."""

        def scaled(count: int) -> int:
            return round(count * weight)

        return LateRecords(
            scaled(self.records),
            scaled(self.in_merge),
            scaled(self.against_older),
            None if self.changed_nothing is None else scaled(self.changed_nothing),
            scaled(self.too_late),
            scaled(self.unmeasured),
            self.largest,
            tuple(map(scaled, self.steps)),
        )

    @property
    def late(self) -> int:
        """All that were late."""
        return self.in_merge + self.against_older

    def to_json(self) -> dict[str, Any]:
        """Return it as the catalog keeps it."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> LateRecords:
        """Return the counts that ``to_json`` wrote."""
        return cls(**{**body, "steps": tuple(body["steps"])})


@dataclass(frozen=True)
class LateOfSender:
    """The late records of one sender in one lane, by the number of the lane in ``lanes_of``."""

    lane: int
    sender: str
    counts: LateRecords
