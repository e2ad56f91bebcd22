"""What the client answers with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Batch:
    """Records that are durable. ``state`` is that of the moment: ``staged``, and ``merged`` once Spark has folded them
    into the rows. ``answer`` is all that the service says of it.
    """

    id: str
    number: int
    state: str
    records: int
    ignored_records: int
    answer: Mapping[str, Any] = field(repr=False)
    replayed: bool = False  # an earlier request with its Idempotency-Key stored it

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any], *, replayed: bool = False) -> Batch:
        """Return the batch that an answer describes."""
        return cls(
            answer["id"],
            answer["number"],
            answer["state"],
            answer["records"],
            answer["ignoredRecords"],
            answer,
            replayed=replayed,
        )

    @property
    def warnings(self) -> Sequence[str]:
        """What may surprise about the records."""
        return [f"{one['detail']}; {one['fix']}" for one in self.answer.get("warnings", ())]


@dataclass(frozen=True)
class Upserted:
    """The batches that one call of ``upsert`` became, in order."""

    batches: Sequence[Batch]

    @property
    def records(self) -> int:
        """How many records were taken."""
        return sum(batch.records for batch in self.batches)

    @property
    def merged(self) -> bool:
        """Whether all were merged when the call returned: batches are merged in their order."""
        return not self.batches or self.batches[-1].state == "merged"

    @property
    def last(self) -> str | None:
        """The id of the last batch, for ``get(…, after=)``."""
        return self.batches[-1].id if self.batches else None


@dataclass(frozen=True)
class Change:
    """One row that a merge changed. ``kind`` is +I, -U (before), +U (after) or -D; ``place`` is where to go on after
    it: ``changes(after=place)``.
    """

    kind: str
    snapshot: int
    row: Mapping[str, Any]
    place: str
