"""Rules whose answer does not depend on order: sums, booleans, unions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

from app.core.errors import Unfoldable
from app.core.rules.log_records import LogRecords
from app.core.rules.participation import Participation
from app.core.rules.rule import HiddenColumn, Rule, State, TotalBounds
from app.core.rules.totals import Totals, totals_of
from app.core.table.records import Record
from app.core.table.schema import Column


def overflow(column: Column, key: Mapping[str, Any] | None = None, *, endless: bool = False) -> Unfoldable:
    """Return a total that its column cannot hold (docs/semantics.md, A.7); ``endless``: a quotient without end."""
    where = f" of key {dict(key)}" if key is not None else ""
    if endless:
        message = (
            f"column {column.name!r}{where}: a retract divides its product into a quotient without end, which no "
            f"{column.type.base_sql} holds; delete the staged batch with that retract"
        )
    else:
        message = (
            f"column {column.name!r}{where}: its total is out of range for {column.type.base_sql}; "
            "widen the column, delete the staged batch that exceeds it, or post a record that brings it back"
        )
    return Unfoldable(message)


@dataclass(frozen=True)
class Sum(Rule):
    """``sum``: adds are added, retracts subtracted, nulls skipped."""

    column: Column
    part: Participation

    @cached_property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]  # a frozen field in other rules
        return (self.column,)

    @cached_property
    def _totals(self) -> Totals[Any]:
        return totals_of(self.column)

    @property
    def hidden(self) -> tuple[HiddenColumn, ...]:
        return (self._totals.hidden,)

    @property
    def takes_back(self) -> bool:
        return not self.part.adds_only

    @property
    def bounds(self) -> tuple[TotalBounds, ...]:
        return self._totals.bounds

    def finish(self, state: Mapping[str, Any]) -> State:
        if any(state[bounds.carry] is not None for bounds in self.bounds):
            raise overflow(self.column)
        return super().finish(state)

    def lift(self, record: Record) -> State:
        if not self.part.takes(record):
            return self.empty
        value = record.values[self.column.name]
        if record.kind.add:
            return {**self.empty, self.column.name: value}  # a value of the column is inside its type
        return self._totals.state(self._totals.negated(value))

    def combine(self, older: Mapping[str, Any], newer: Mapping[str, Any]) -> State:
        return self.combine_all((older, newer))

    def combine_all(self, states: Sequence[Mapping[str, Any]]) -> State:
        if len(states) == 1:
            return super().combine_all(states)
        return self._summed([total for state in states if (total := self._totals.total(state)) is not None])

    def fold_records(self, records: Sequence[Record]) -> State:
        taken = [(record.values[self.column.name], record.kind.add) for record in records if self.part.takes(record)]
        return self._summed([self._signed(value, add) for value, add in taken])

    def fold_log(self, records: LogRecords) -> State:
        values, kinds = records.column(self.column.name), records.kinds
        return self._summed([self._signed(values[p], not kinds[p] & 1) for p in self.part.places(records)])

    def retotalled(self, before: Sum, state: Mapping[str, Any]) -> State:
        """Convert a state of ``before``, the same sum of a narrower column."""
        total = before._totals.total(state)
        return self.empty if total is None else self._totals.state(self._totals.widened(total, before.column.type))

    def _signed(self, value: Any, add: bool) -> Any:
        return self._totals.of_value(value) if add else self._totals.negated(value)

    def _summed(self, totals: Sequence[Any]) -> State:
        return self._totals.state(self._totals.added(totals)) if totals else self.empty


@dataclass(frozen=True)
class Union(Rule):
    """An associative and commutative function of one column that skips nulls and takes no retracts.

    ``join`` makes one of two values. ``called`` names the function and its options. ``shown`` turns the state into the
    visible value, ``unreadable`` says why a value is none of the function's.
    """

    column: Column
    join: Callable[[Any, Any], Any]
    part: Participation
    meaning: str = ""
    called: tuple[Any, ...] = ()
    shown: Callable[[Any], Any] = lambda value: value
    unreadable: Callable[[Any], str | None] = lambda _: None

    @cached_property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]  # a frozen field in other rules
        return (self.column,)

    @property
    def hidden(self) -> tuple[HiddenColumn, ...]:
        return ()

    def fault(self, record: Record) -> str | None:
        value = record.values[self.column.name]
        return None if value is None else self.unreadable(value)

    def finish(self, state: Mapping[str, Any]) -> State:
        value = state[self.column.name]
        return {self.column.name: None if value is None else self.shown(value)}

    def lift(self, record: Record) -> State:
        return {self.column.name: record.values[self.column.name] if self.part.takes(record) else None}

    def combine(self, older: Mapping[str, Any], newer: Mapping[str, Any]) -> State:
        a, b = older[self.column.name], newer[self.column.name]
        return {self.column.name: b if a is None else a if b is None else self.join(a, b)}

    def fold_log(self, records: LogRecords) -> State:
        values = records.column(self.column.name)
        lists = [values[place] for place in self.part.places(records)]
        return {self.column.name: reduce(self.join, lists) if lists else None}
