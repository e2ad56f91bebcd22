"""Merge rules: for some columns of a table, what a record contributes and how two states combine (docs/kernel.md).

Its state is stored in the run: the visible columns, and hidden ones where the visible ones do not determine the answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, reduce
from typing import Any

from app.core.rules.log_records import LogRecords
from app.core.rules.participation import EVERY_RECORD, Participation
from app.core.table.records import Record
from app.core.table.schema import Column
from app.core.types.datatype import DataType
from app.core.types.kinds import Kind

State = dict[str, Any]
Combine = Callable[[Sequence[Mapping[str, Any]]], State]
"""What becomes of some state columns of one key: of its states, oldest first."""


@dataclass(frozen=True)
class HiddenColumn:
    """A state column that no row shows; where it is not ``needed``, a run without it holds null there."""

    name: str
    type: DataType
    needed: bool = True


BOOLEAN = DataType(Kind.BOOLEAN)


@dataclass(frozen=True)
class TotalBounds:
    """The range of a column that accumulates, and the hidden column that holds a total outside it.

    ``additive``: a key's total is the sum of its totals in the runs, so bounds on those bound it. ``endless``: what is
    held there of a quotient without end; None if none can come.
    """

    column: Column
    carry: str
    low: Decimal
    high: Decimal
    additive: bool = True
    endless: Decimal | None = None


class Rule(ABC):
    """How some columns fold; ``part`` says of which records."""

    columns: tuple[Column, ...]
    part: Participation = EVERY_RECORD

    @property
    def null_may_be_unnamed(self) -> bool:
        """Whether a null in its columns may mean that no record named them."""
        return self.part.skips_null or self.part.skips_unnamed

    def named_columns(self, state: Mapping[str, Any]) -> frozenset[str]:
        """Return the columns that the records in ``state`` named, with a value or with null."""
        certain = not self.null_may_be_unnamed
        return frozenset(c.name for c in self.columns if certain or state[c.name] is not None)

    @property
    @abstractmethod
    def hidden(self) -> tuple[HiddenColumn, ...]:
        """State columns that this rule needs in addition to its visible columns."""

    @property
    def kept(self) -> frozenset[str]:
        """The columns whose values ``lift`` and ``combine`` store as they are, null or not, and never look at."""
        return frozenset()

    @property
    def takes_back(self) -> bool:
        """Whether the value of a retract is taken back, so that a retract has to bring it."""
        return False

    @property
    def parts(self) -> tuple[Combine, ...]:
        """Functions which together say what ``combine_all`` says, each of as few state columns as can be."""
        return (self.combine_all,)

    @property
    def bounds(self) -> tuple[TotalBounds, ...]:
        """The ranges in which accumulated values must end; none if every value is legal."""
        return ()

    def fault(self, record: Record) -> str | None:
        """Return why a record can never be folded, None if it can (docs/semantics.md, A.7)."""
        return None

    @abstractmethod
    def lift(self, record: Record) -> State:
        """Return the state that one record contributes."""

    @abstractmethod
    def combine(self, older: Mapping[str, Any], newer: Mapping[str, Any]) -> State:
        """Return the state of both; every record of ``newer`` arrived after every record of ``older``. Associative."""

    def combine_all(self, states: Sequence[Mapping[str, Any]]) -> State:
        """Return the state of all ``states``, of which there is one at least, oldest first: as ``combine`` of each with
        the next, in one go.
        """
        first, *others = states
        return reduce(self.combine, others, {name: first.get(name) for name in self.names})

    def fold_records(self, records: Sequence[Record]) -> State:
        """Return the state of ``records``, of which there is one at least, in arrival order."""
        return self.combine_all([self.lift(record) for record in records])

    def fold_log(self, records: LogRecords) -> State:
        """Return the state of records in merge order: each is lifted, and combined with the state before it."""
        return self.combine_all([self.empty, *(self.lift(records.record(place)) for place in range(len(records)))])

    def refolded(self, state: Mapping[str, Any]) -> State:
        """Return ``state`` after its values were widened: a total that left the old type may be inside the new one."""
        return self.combine_all([state])

    def settled(self, state: Mapping[str, Any]) -> State:
        """Return the state that the oldest run stores in place of ``state``: no older run exists, and no older record
        can come.
        """
        return {name: state.get(name) for name in self.names}

    def finish(self, state: Mapping[str, Any]) -> State:
        """Return the visible values of a state."""
        return {column.name: state[column.name] for column in self.columns}

    @property
    def empty(self) -> State:
        """The state to which no record has contributed."""
        return {**{c.name: None for c in self.columns}, **{h.name: None for h in self.hidden}}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of all state columns, visible ones first."""
        return (*(c.name for c in self.columns), *(h.name for h in self.hidden))
