"""Change events with faults: what a request does with them, and the events that are set aside."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property

from app.core.faults import Violation


class OnFault(StrEnum):
    """Values of ``onFault``."""

    REFUSE = "refuse"  # the whole request
    SET_ASIDE = "set-aside"


@dataclass(frozen=True)
class FaultyEvent:
    """An event that is not stored as records; ``number`` is its place in the body.

    ``text`` is its JSON, ``format`` names how it is read, ``unavailable`` is its placeholder for values that did not
    change. The pointers of ``faults`` are into the event.
    """

    number: int
    format: str
    unavailable: str
    text: str
    faults: Sequence[Violation]

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of format, placeholder and text: a repeated event has the same."""
        return hashlib.sha256(f"{self.format}\0{self.unavailable}\0{self.text}".encode()).hexdigest()


@dataclass
class FaultyEvents:
    """The events of one body that are set aside, in its order."""

    events: list[FaultyEvent] = field(default_factory=list)


@dataclass(frozen=True)
class SetAsideEvent:
    """An event that its table keeps until it is retried or withdrawn; ``number`` is its place in the list.

    It was sent so many ``times``, first by ``batch_id``'s request. The other members are as those of ``FaultyEvent``.
    """

    id: str
    table_id: str
    number: int
    format: str
    unavailable: str
    text: str
    faults: Sequence[Violation]
    times: int
    batch_id: str
    set_aside_at: datetime
    set_aside_by: str
