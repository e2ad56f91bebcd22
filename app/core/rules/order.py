"""The order in which records of one key are folded: sequence fields, their sort order, then arrival."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import total_ordering
from typing import Any

from app.core.table.schema import Column
from app.core.types.entry import as_it_is
from app.core.types.kinds import Family

# What ``sequence.auto-padding`` reads as whole numbers.
CONVERTED = (Family.FLOATING, Family.TEXT, Family.DECIMAL)


class Floor(StrEnum):
    """The unit to which ``sequence.auto-padding`` cuts a timestamp, so that arrival decides inside it."""

    SECOND = "SECOND"
    MILLISECOND = "MILLISECOND"


@total_ordering
class _Reversed:
    """A value that compares the other way round."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and bool(self.value == other.value)

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)

    def __hash__(self) -> int:
        return hash(self.value)


@dataclass(frozen=True)
class OrderField:
    """One field of an order. Null is smaller than any value in both directions.

    ``integral`` reads the value as a whole number, as ``sequence.auto-padding`` does.
    """

    column: Column
    descending: bool = False
    floor: Floor | None = None
    integral: bool = False

    def rank(self, value: Any) -> tuple[Any, ...]:
        """Return the sort key of ``value``."""
        if value is None:
            return (0,)
        ranked = self._scalar(value)
        return (1, _Reversed(ranked) if self.descending else ranked)

    def ranks(self, values: Sequence[Any], places: Sequence[int]) -> list[Any]:
        """Return ``rank`` of the values at ``places``: without the null's where there is none."""
        plain = not (self.floor or self.integral or self.descending) and self.column.type.entry.rank is as_it_is
        chosen = [values[place] for place in places]
        if None in chosen:
            return (
                [(0,) if value is None else (1, value) for value in chosen] if plain else list(map(self.rank, chosen))
            )
        return chosen if plain else [self.rank(value) for value in chosen]

    def _scalar(self, value: Any) -> Any:
        if self.floor and self.column.type.family is Family.TIMESTAMP:
            unit = 1_000_000 if self.floor is Floor.SECOND else 1_000
            return value.replace(microsecond=value.microsecond // unit * unit)
        if self.integral and self.column.type.family in CONVERTED:
            return int(value) if self.column.type.family is Family.TEXT else int(Decimal(value))
        return self.column.type.entry.rank(value)


@dataclass(frozen=True)
class Order:
    """A tuple of order fields, optionally the row-kind flag (retract before add), and at last arrival."""

    fields: tuple[OrderField, ...] = ()
    flag: bool = False

    @property
    def by_arrival(self) -> bool:
        """Whether arrival alone decides."""
        return not self.fields and not self.flag

    def then(self, later: Order) -> Order:
        """Return the same order, ties broken by ``later``."""
        return Order((*self.fields, *later.fields), later.flag)

    def rank(self, values: Mapping[str, Any], add: bool) -> tuple[Any, ...]:
        """Return the sort key of a record (without arrival): ``values`` by column name."""
        ranks = tuple(field.rank(values[field.column.name]) for field in self.fields)
        return (*ranks, add) if self.flag else ranks

    def ranks(
        self, column: Callable[[str], Sequence[Any]], adds: Callable[[int], bool], places: Sequence[int]
    ) -> list[Any]:
        """Return ``rank`` of many records at once; ``column`` gives the values of one, ``adds`` says of a place whether
        its record adds. Not where arrival alone decides.
        """
        ranks = [field.ranks(column(field.column.name), places) for field in self.fields]
        if self.flag:
            ranks.append([adds(place) for place in places])
        return ranks[0] if len(ranks) == 1 else list(zip(*ranks, strict=True))
