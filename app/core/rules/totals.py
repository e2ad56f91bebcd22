"""How a run holds the total of a column: what the column shows, and in a hidden column what it cannot hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cached_property, reduce
from typing import Any, Generic, TypeVar

from app.core.rules.float_sums import FloatSum, added, retracted, whole_number
from app.core.rules.rule import HiddenColumn, State, TotalBounds
from app.core.rules.widening import widened
from app.core.table.schema import Column
from app.core.types.datatype import DataType
from app.core.types.kinds import Family, Kind
from app.core.types.numbers import EXACT, range_of

Total = TypeVar("Total")


class Totals(ABC, Generic[Total]):
    """The totals of one column."""

    def __init__(self, column: Column) -> None:
        self.column = column

    @property
    @abstractmethod
    def hidden(self) -> HiddenColumn:
        """The hidden column."""

    @property
    def bounds(self) -> tuple[TotalBounds, ...]:
        """The range that a total must end in; none if any total is legal."""
        return ()

    @abstractmethod
    def of_value(self, value: Any) -> Total:
        """Return the total of one value that is added."""

    @abstractmethod
    def negated(self, value: Any) -> Total:
        """Return the total of one value that is taken back."""

    @abstractmethod
    def added(self, totals: Sequence[Total]) -> Total:
        """Return the total of ``totals``, of which there is one at least."""

    @abstractmethod
    def widened(self, total: Any, old: DataType) -> Total:
        """Return a total of a column whose type was ``old``."""

    @abstractmethod
    def total(self, state: Mapping[str, Any]) -> Total | None:
        """Return the total that a state holds; None if nothing was summed."""

    @abstractmethod
    def state(self, total: Total) -> State:
        """Return the state that holds a total."""


class WholeTotals(Totals[Any]):
    """Totals of whole numbers and decimals.

    One outside the column's type is kept in ``_kf_carry_*`` until later records bring it back, so that the answer does
    not depend on where the history was cut (check once, at the end of the fold).
    """

    @cached_property
    def hidden(self) -> HiddenColumn:
        return HiddenColumn(f"_kf_carry_{self.column.id}", self._wide_type)

    @cached_property
    def _wide_type(self) -> DataType:
        kind = self.column.type.kind
        if kind is Kind.DECIMAL:
            return DataType(Kind.DECIMAL, precision=38, scale=self.column.type.scale)
        return DataType(Kind.DECIMAL, precision=38, scale=0) if kind is Kind.BIGINT else DataType(Kind.BIGINT)

    @property
    def bounds(self) -> tuple[TotalBounds, ...]:
        return (TotalBounds(self.column, self.hidden.name, *range_of(self.column.type)),)

    @cached_property
    def _range(self) -> tuple[Any, Any]:
        low, high = range_of(self.column.type)
        return (int(low), int(high)) if self.column.type.family is Family.INTEGER else (low, high)

    def of_value(self, value: Any) -> Any:
        return value

    def negated(self, value: Any) -> Any:
        return EXACT.minus(value) if isinstance(value, Decimal) else -value

    def added(self, totals: Sequence[Any]) -> Any:
        return reduce(_plus, totals)

    def widened(self, total: Any, old: DataType) -> Any:
        return widened(total, old, self.column.type)

    def total(self, state: Mapping[str, Any]) -> Any:
        carried = state[self.hidden.name]
        if carried is None:
            return state[self.column.name]
        return int(carried) if self.column.type.kind is not Kind.DECIMAL else carried

    def state(self, total: Any) -> State:
        if self._range[0] <= total <= self._range[1]:
            return {self.column.name: total, self.hidden.name: None}
        wide = Decimal(total) if self._wide_type.kind is Kind.DECIMAL else total
        return {self.column.name: None, self.hidden.name: wide}


class FloatTotals(Totals[FloatSum]):
    """Totals of FLOAT and DOUBLE: the exact sum, rounded once. ``_kf_rest_*`` holds what that takes away."""

    @cached_property
    def hidden(self) -> HiddenColumn:
        # Runs of before had rounded sums and no rest.
        rest = DataType(Kind.ARRAY, element=DataType(Kind.DOUBLE))
        return HiddenColumn(f"_kf_rest_{self.column.id}", rest, needed=False)

    @cached_property
    def _single(self) -> bool:
        return self.column.type.kind is Kind.FLOAT

    def of_value(self, value: Any) -> FloatSum:
        return FloatSum(value)

    def negated(self, value: Any) -> FloatSum:
        return retracted(value)

    def added(self, totals: Sequence[FloatSum]) -> FloatSum:
        # A rest may have been made for the narrower type that the column had before.
        alone = len(totals) == 1 and totals[0].rest is None
        return totals[0] if alone else added(totals, single=self._single)

    def widened(self, total: Any, old: DataType) -> FloatSum:
        if old.family is Family.FLOATING:
            return added([total], single=self._single)
        return whole_number(total, single=self._single)

    def total(self, state: Mapping[str, Any]) -> FloatSum | None:
        number = state[self.column.name]
        return None if number is None else FloatSum(number, state.get(self.hidden.name))

    def state(self, total: FloatSum) -> State:
        return {self.column.name: total.number, self.hidden.name: total.rest}


def totals_of(column: Column) -> Totals[Any]:
    """Return how runs hold the totals of a numeric column."""
    return FloatTotals(column) if column.type.family is Family.FLOATING else WholeTotals(column)


def _plus(a: Any, b: Any) -> Any:
    return EXACT.add(a, b) if isinstance(a, Decimal) else a + b
