"""The result of change events: records, events about no row, events that cannot be used."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from app.core.alter.actions import holds
from app.core.errors import FaultCode
from app.core.plan.merging.merge_plan import MergePlan
from app.core.plan.records.record_decoder import KIND_MEMBER, Note
from app.core.plan.records.unknown_columns import DeclaredColumn
from app.core.rules.named_values import NamedValues
from app.core.rules.register import Register
from app.core.rules.replays.replay import Replay
from app.core.rules.rule import Rule
from app.core.table.options.event_position import EventPosition
from app.core.table.records import RowKind
from app.core.table.schema import Column
from app.core.types.kinds import Family, Kind
from app.core.types.parser import parse_type
from app.services.bodies.event_positions import EventObjects, position_of
from app.services.shared.unavailable import UNAVAILABLE

Row = Mapping[str, Any]
WHOLE_ROWS = "let the database log whole rows (PostgreSQL: REPLICA IDENTITY FULL; MySQL: binlog_row_image=FULL)"
_TIMES = (Family.TIME, Family.TIMESTAMP)
_WITHOUT_ZONE = (Family.DATE, Family.TIME)
_CLOCK = re.compile(r"(.*\d\d:\d\d:\d\d)\.(\d+)(.*)", re.DOTALL)


class Unusable(ValueError):
    """An event that is not a change of a row, or that lacks the row or a value of its ``column``."""

    def __init__(
        self, message: str, fix: str, column: str | None = None, code: FaultCode = FaultCode.UNUSABLE_EVENT
    ) -> None:
        super().__init__(message)
        self.fix = fix
        self.column = column
        self.code = code


@dataclass
class Changes:
    """The records of the events read so far, each with its event, and the counts of ``Note``.

    ``unavailable`` is the placeholder of values that did not change; ``said`` is the object with the position of the
    current event. Column types that events declare are collected in ``declared``, if requested.
    """

    plan: MergePlan
    unavailable: str = UNAVAILABLE
    declared: dict[str, DeclaredColumn] | None = None
    records: list[object] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    notes: dict[Note, int] = field(default_factory=dict)
    event: int = 0
    objects: EventObjects = ()

    def add(self, kind: RowKind, row: Row) -> None:
        """Add one record of the event that is being read."""
        record = dict(row)
        for name in self._adapted:
            if name in record:
                record[name] = self._value(name, record[name])
        for name, position in self._positions.items():
            record[name] = self._position(name, position)
        record[self._kind_member] = kind.text
        self.records.append(record)
        self.events.append(self.event)

    def update(self, before: Row | None, after: Row) -> None:
        """Add an update. The row before it is added as a retract only if functions need it, or if the key changed."""
        if before is not None and self._moves(before, after):
            self.add(RowKind.DELETE, before)
            self.add(RowKind.INSERT, after)
            return
        if self.takes_back:
            self.add(RowKind.UPDATE_BEFORE, row_in(before, "before", WHOLE_ROWS))
        self.add(RowKind.UPDATE_AFTER, after)

    def declare(self, columns: Mapping[str, DeclaredColumn]) -> None:
        """Collect the columns that an event declares. A type that is narrower than the one of another event is of an
        earlier event that came late.
        """
        if self.declared is not None:
            self.declared.update(
                {name: column for name, column in columns.items() if not _is_narrower(column, self.declared.get(name))}
            )

    def skip(self) -> None:
        """Count an event about no row."""
        self.note(Note.SKIPPED_EVENTS)

    def note(self, note: Note) -> None:
        """Count a note about the current event."""
        self.notes[note] = self.notes.get(note, 0) + 1

    @cached_property
    def takes_back(self) -> bool:
        """Whether some column accumulates values, so that updates need a retract. A function that takes no retract
        then refuses the -U, with the option to set.
        """
        return RowKind.UPDATE_BEFORE not in self.plan.dropped and not all(
            isinstance(rule, (Register, NamedValues)) for rule in _each_of(self.plan.rules)
        )

    @cached_property
    def local_columns(self) -> Sequence[str]:
        """The columns of dates and times without a zone."""
        columns = self.plan.schema.columns
        return [
            column.name
            for column in columns
            if column.type.kind is Kind.TIMESTAMP or column.type.family in _WITHOUT_ZONE
        ]

    @cached_property
    def _kind_member(self) -> str:
        return self.plan.row_kind_column or KIND_MEMBER

    @cached_property
    def _cuts(self) -> bool:
        return bool(self.plan.schema.parsed["events.truncate-time"])

    @cached_property
    def _adapted(self) -> Sequence[str]:
        """The columns whose values may have another form in events than in records; usually none."""
        columns = self.plan.schema.columns
        times = {column.name for column in columns if column.type.family in _TIMES} if self._cuts else set()
        return [column.name for column in columns if column.type.kind is Kind.BOOLEAN or column.name in times]

    @cached_property
    def _positions(self) -> Mapping[str, EventPosition]:
        fields = self.plan.schema.parsed.fields
        return {name: value for (name, suffix), value in fields.items() if suffix == "from-event"}

    def _position(self, name: str, position: EventPosition) -> int | str:
        parsed = position_of(position, self.objects)
        if parsed is None:
            fix = f"send the event as the connector wrote it, or set another fields.{name}.from-event"
            raise Unusable(f"the event has no {position}, from which {name!r} is filled", fix, name)
        return parsed

    def _moves(self, before: Row, after: Row) -> bool:
        """Return whether the update changes the key. Key columns that ``before`` lacks did not change."""
        names = self.plan.schema.primary_key
        known = [name for name in names if before.get(name) is not None and name in after]
        return len(known) == len(names) and any(before[name] != after[name] for name in names)

    def _value(self, name: str, value: Any) -> Any:
        column = self.plan.schema.by_name[name]
        if column.type.kind is Kind.BOOLEAN:
            return bool(value) if type(value) is int and value in (0, 1) else value
        return truncated(column, value) if isinstance(value, str) else value


def _each_of(rules: Iterable[Rule]) -> Iterator[Rule]:
    """Yield the rules of columns, those by which logged records are replayed, too."""
    for rule in rules:
        yield from _each_of(rule.rules) if isinstance(rule, Replay) else (rule,)


def _is_narrower(column: DeclaredColumn, other: DeclaredColumn | None) -> bool:
    if other is None or other.type == column.type:
        return False
    return holds(parse_type(column.type), parse_type(other.type), key=False)


def truncated(column: Column, text: str) -> str:
    """Return a time of an event without the digits that its column cannot hold."""
    match = _CLOCK.fullmatch(text)
    if match is None or column.type.family not in _TIMES:
        return text
    precision = column.type.precision or 0
    held = min(precision, 3) if column.type.family is Family.TIME else precision
    digits = match[2][:held]
    return f"{match[1]}.{digits}{match[3]}" if digits else match[1] + match[3]


def object_of(value: object) -> Mapping[str, Any]:
    """Return ``value``, a JSON object. Raise ``Unusable``."""
    if isinstance(value, dict):
        return value
    raise Unusable("a change event is a JSON object", "send the events of one of the formats that the table reads")


def row_in(value: object, where: str, fix: str) -> Row:
    """Return the row in a member of an event. Raise ``Unusable`` if there is none."""
    if isinstance(value, dict):
        return value
    raise Unusable(f"the event has no row in {where!r}", fix)
