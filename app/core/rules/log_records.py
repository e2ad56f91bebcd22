"""The records of a log by column: what rules fold at once when a row is replayed, instead of record by record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.core.rules.order import Order
from app.core.table.named_columns import bit_of, word_of
from app.core.table.records import ARRIVAL_COLUMN, KIND_COLUMN, Record, RowKind
from app.core.table.schema import Column

Entry = Mapping[str, Any]


def member_of(column: Column) -> str:
    """Return the name of a column in a log entry: by its id, so that a log outlives changes of names."""
    return f"c{column.id}"


@dataclass(frozen=True)
class LogRecords:
    """Log entries in merge order, which is ``order``; ``members`` gives what a column is called in an entry.

    An entry that is older than a column is null there. ``optional``: the columns of which entries say whether they
    name them; none if every entry names all.
    """

    entries: Sequence[Entry]
    order: Order
    members: Mapping[str, str]
    optional: tuple[Column, ...] = ()
    _columns: dict[str, list[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.entries)

    def column(self, name: str) -> list[Any]:
        """Return the values of a column."""
        values = self._columns.get(name)
        if values is None:
            member = self.members[name]
            values = self._columns[name] = [entry.get(member) for entry in self.entries]
        return values

    @property
    def kinds(self) -> list[int]:
        """The numbers of the row kinds; even ones add."""
        kinds = self._columns.get(KIND_COLUMN)
        if kinds is None:
            kinds = self._columns[KIND_COLUMN] = [entry[KIND_COLUMN] for entry in self.entries]
        return kinds

    def named(self, column: Column) -> list[bool]:
        """Return for each record whether it names the column."""
        word, bit = word_of(column), bit_of(column)
        return [bool((entry.get(word) or 0) & bit) for entry in self.entries]

    def record(self, place: int) -> Record:
        """Return the record at ``place``."""
        entry = self.entries[place]
        values = {name: entry.get(member) for name, member in self.members.items()}
        optional = self.optional
        named = frozenset(c.name for c in optional if (entry.get(word_of(c)) or 0) & bit_of(c)) if optional else None
        return Record(RowKind(entry[KIND_COLUMN]), values, entry[ARRIVAL_COLUMN], named)

    def since(self, place: int) -> LogRecords:
        """Return those from ``place`` on."""
        return replace(self, entries=self.entries[place:], _columns={}) if place else self

    def at(self, places: Sequence[int]) -> LogRecords:
        """Return those at ``places``, which ascend."""
        if len(places) == len(self.entries):
            return self
        return replace(self, entries=[self.entries[place] for place in places], _columns={})

    def ranks(self, order: Order, places: Sequence[int]) -> list[Any] | None:
        """Return sort keys that put the records at ``places`` into the order of ``order``; None if they already are in
        that order. Ties keep their own order.
        """
        length = len(self.order.fields)
        tail = order.fields[len(order.fields) - length :] if length else ()
        ends_alike = tail == self.order.fields and order.flag == self.order.flag
        fields = order.fields[: len(order.fields) - length] if ends_alike else order.fields
        rest = Order(fields, flag=order.flag and not ends_alike)
        if rest.by_arrival:
            return None
        kinds = self.kinds
        return rest.ranks(self.column, lambda place: not kinds[place] & 1, places)
