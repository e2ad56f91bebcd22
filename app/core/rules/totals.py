"""How a run stores the total of a column: the shown value, and in a hidden column the part that does not fit it."""

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
    """Totals of one column: computed from values, and stored in a state row. ``Total`` is the type of one total."""

    def __init__(self, column: Column) -> None:
        self.column = column

    @property
    @abstractmethod
    def hidden(self) -> HiddenColumn:
        """The hidden column that completes the total."""

    @property
    def bounds(self) -> tuple[TotalBounds, ...]:
        """The range that the final total must be in; empty if every total is legal."""
        return ()

    @abstractmethod
    def of_value(self, value: Any) -> Total:
        """Return the total of one added value."""

    @abstractmethod
    def negated(self, value: Any) -> Total:
        """Return the total of one retracted value."""

    @abstractmethod
    def added(self, totals: Sequence[Total]) -> Total:
        """Return the sum of ``totals``; they are not empty."""

    @abstractmethod
    def widened(self, total: Any, old: DataType) -> Total:
        """Return ``total``, made when the column had the type ``old``, for its wider type now."""

    @abstractmethod
    def total(self, state: Mapping[str, Any]) -> Total | None:
        """Return the total that ``state`` stores; None if nothing was summed."""

    @abstractmethod
    def state(self, total: Total) -> State:
        """Return the values of the column and its hidden column that store ``total``."""


class WholeTotals(Totals[Any]):
    """Totals of whole numbers and decimals.

    A total outside the column's type is stored in ``_kf_carry_*``, because later records may bring it back. It is
    checked once, at the end of the fold. So the result does not depend on where merges cut the history.
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
    """Totals of FLOAT and DOUBLE: the exact sum, rounded once. ``_kf_rest_*`` stores the part that rounding removes."""

    @cached_property
    def hidden(self) -> HiddenColumn:
        # Optional: runs of earlier versions have rounded sums and no rest.
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
        # Compute a rest again: it may belong to a narrower type that the column had before.
        is_whole = len(totals) == 1 and totals[0].rest is None
        return totals[0] if is_whole else added(totals, single=self._single)

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
    """Return the totals of a numeric column, by its type."""
    return FloatTotals(column) if column.type.family is Family.FLOATING else WholeTotals(column)


def _plus(a: Any, b: Any) -> Any:
    return EXACT.add(a, b) if isinstance(a, Decimal) else a + b
