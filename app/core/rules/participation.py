"""Which records take part in a rule: one value, with the reason why not.

A further condition on records is one more class here, and one entry where rules are made of options.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from app.core.rules.log_records import LogRecords
from app.core.table.records import Record
from app.core.table.schema import Column

UNCHANGED, UNTOUCHED = "unchanged", "the group is not touched"


def not_named(record: Record, columns: Sequence[Column], otherwise: str) -> str:
    """Return why a record is left out that does not name all of ``columns``: the unnamed ones, then ``otherwise``."""
    unnamed = [column.name for column in columns if not record.names(column.name)]
    return f"{' and '.join(unnamed)} not named: {otherwise}"


class Condition(ABC):
    """A condition that a record must meet to take part in a rule."""

    @abstractmethod
    def met(self, record: Record) -> bool:
        """Return whether the record meets the condition."""

    def places(self, records: LogRecords, places: Sequence[int]) -> Sequence[int]:
        """Return those of ``places`` whose record meets the condition."""
        return [place for place in places if self.met(records.record(place))]

    @abstractmethod
    def reason(self, record: Record) -> str:
        """Return, in words, why a record that does not meet the condition is left out."""


@dataclass(frozen=True)
class Adds(Condition):
    """+I and +U; ``because`` says why no retract takes part."""

    because: str = ""

    def met(self, record: Record) -> bool:
        return record.kind.add

    def places(self, records: LogRecords, places: Sequence[int]) -> Sequence[int]:
        kinds = records.kinds
        return [place for place in places if not kinds[place] & 1]

    def reason(self, record: Record) -> str:
        return f"{record.kind.text} leaves this column unchanged{self.because}"


@dataclass(frozen=True)
class NotNull(Condition):
    """Records with a value in the column."""

    column: Column
    otherwise: str

    def met(self, record: Record) -> bool:
        return record.values[self.column.name] is not None

    def places(self, records: LogRecords, places: Sequence[int]) -> Sequence[int]:
        values = records.column(self.column.name)
        return [place for place in places if values[place] is not None]

    def reason(self, record: Record) -> str:
        return self.otherwise if record.names(self.column.name) else not_named(record, (self.column,), UNCHANGED)


@dataclass(frozen=True)
class InGroup(Condition):
    """Records of a sequence group: not all its ordering fields are null."""

    ordering: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the ordering fields."""
        return tuple(column.name for column in self.ordering)

    def met(self, record: Record) -> bool:
        return any(record.values[name] is not None for name in self.names)

    def places(self, records: LogRecords, places: Sequence[int]) -> Sequence[int]:
        first, *others = (records.column(name) for name in self.names)
        if not others:
            return [place for place in places if first[place] is not None]
        columns = (first, *others)
        return [place for place in places if any(values[place] is not None for values in columns)]

    def reason(self, record: Record) -> str:
        named = all(record.names(name) for name in self.names)
        return f"{' and '.join(self.names)} null: {UNTOUCHED}" if named else not_named(record, self.ordering, UNTOUCHED)


@dataclass(frozen=True)
class Names(Condition):
    """Records that name every one of ``columns``; with ``or_retract``, and all that retract:
    what a delete takes away it need not name.
    """

    columns: tuple[Column, ...]
    otherwise: str
    or_retract: bool = False

    def met(self, record: Record) -> bool:
        if self.or_retract and not record.kind.add:
            return True
        return all(record.names(column.name) for column in self.columns)

    def places(self, records: LogRecords, places: Sequence[int]) -> Sequence[int]:
        kinds, named = records.kinds, [records.named(column) for column in self.columns]
        return [
            place for place in places if (self.or_retract and kinds[place] & 1) or all(flags[place] for flags in named)
        ]

    def reason(self, record: Record) -> str:
        return not_named(record, self.columns, self.otherwise)


@dataclass(frozen=True)
class Group:
    """A sequence group by its ordering fields; ``named``: only records that name all of them touch it."""

    ordering: tuple[Column, ...]
    named: bool = False

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions for a record to touch the group: a value in one of its fields."""
        all_named: tuple[Condition, ...] = (Names(self.ordering, UNTOUCHED),)
        return (*(all_named if self.named and len(self.ordering) > 1 else ()), InGroup(self.ordering))


@dataclass(frozen=True)
class Participation:
    """The records that meet all ``conditions``; of those that a record does not meet, the first is the reason."""

    conditions: tuple[Condition, ...] = ()

    def takes(self, record: Record) -> bool:
        """Return whether the record takes part."""
        return all(condition.met(record) for condition in self.conditions)

    def places(self, records: LogRecords) -> Sequence[int]:
        """Return where the records are that take part."""
        places: Sequence[int] = range(len(records))
        for condition in self.conditions:
            places = condition.places(records, places)
        return places

    def reason(self, record: Record) -> str | None:
        """Return why the record does not take part; None if it does."""
        return next((condition.reason(record) for condition in self.conditions if not condition.met(record)), None)

    @cached_property
    def looked_at(self) -> frozenset[str]:
        """The columns of which it matters whether they are null."""
        not_null = {condition.column.name for condition in self.conditions if isinstance(condition, NotNull)}
        return frozenset({*not_null, *self.group})

    @cached_property
    def adds_only(self) -> bool:
        """Whether no retract takes part."""
        return any(isinstance(condition, Adds) for condition in self.conditions)

    @cached_property
    def skips_null(self) -> bool:
        """Whether null is skipped."""
        return any(isinstance(condition, NotNull) for condition in self.conditions)

    @cached_property
    def skips_unnamed(self) -> bool:
        """Whether a record that does not name the column is skipped."""
        return any(isinstance(condition, Names) for condition in self.conditions)

    @cached_property
    def in_group(self) -> InGroup | None:
        """The condition of the sequence group that the rule is in; None outside groups."""
        return next((condition for condition in self.conditions if isinstance(condition, InGroup)), None)

    @cached_property
    def group(self) -> tuple[str, ...]:
        """The ordering fields of the rule's sequence group; empty outside groups."""
        return self.in_group.names if self.in_group else ()


EVERY_RECORD = Participation()


def kept_records(
    *, adds_only: bool = False, not_null: Column | None = None, group: Group | None = None, named: Names | None = None
) -> Participation:
    """Return the records that a register may keep."""
    adds: list[Condition] = [Adds()] if adds_only else []
    grouped = group.conditions if group else ()
    naming: list[Condition] = [named] if named else []
    valued: list[Condition] = [NotNull(not_null, "null never overwrites")] if not_null else []
    return Participation((*adds, *grouped, *naming, *valued))


def accumulated_records(column: Column, *, adds_only: bool = False, group: Group | None = None) -> Participation:
    """Return the records whose value of ``column`` is accumulated; a column that is not named is null, and skipped as
    such.
    """
    grouped = group.conditions if group else ()
    adds: list[Condition] = [Adds(" (ignore-retract)")] if adds_only else []
    return Participation((*grouped, NotNull(column, "null is skipped"), *adds))
