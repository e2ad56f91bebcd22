"""Change events of databases as records: Debezium's envelope, alone or in a CloudEvent, Canal's and Maxwell's JSON.

An insert is +I, a delete -D of the row as it was, an update +U of the row as it is. Where the table folds by more than
the latest value, an update is -U of the row as it was, too, so that sums stay right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from app.core.errors import ErrorCode, FaultCode, Invalid, Violation
from app.core.hints import cut
from app.core.plan.bounds import Bounds
from app.core.plan.merge_plan import MergePlan
from app.core.plan.record_decoder import KIND_MEMBER, REPORTED_VIOLATIONS, DecodedRecords, RecordDecoder
from app.core.rules.named_values import NamedValues
from app.core.rules.register import Register
from app.core.table.records import RowKind
from app.core.types.kinds import Family
from app.services.debezium_values import convert, converters
from app.services.json_bodies import groups_of, ndjson_lines, parse_json, parsed_each, raw_list
from app.storage.ingest.lists import decode_records
from app.storage.ingest.pieces import Piece
from app.storage.spool import Content

Row = Mapping[str, Any]
UNAVAILABLE = "__debezium_unavailable_value"


class _Unusable(ValueError):
    """An event that is no change of a row, or lacks the row."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


@dataclass
class _Changes:
    """The records of the events read so far, and which event each is of."""

    plan: MergePlan
    records: list[object] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    event: int = 0

    def add(self, kind: RowKind, row: Row) -> None:
        """One record of the event that is being read."""
        self.records.append({**row, self.plan.row_kind_column or KIND_MEMBER: kind.text})
        self.events.append(self.event)

    def update(self, before: Row | None, after: Row) -> None:
        """An update: of what it was only where something is taken back."""
        if _takes_back(self.plan):
            self.add(RowKind.UPDATE_BEFORE, _row(before, "before", _FULL))
        self.add(RowKind.UPDATE_AFTER, after)


def _takes_back(plan: MergePlan) -> bool:
    """Whether values add up: a function that cannot take one back then refuses the -U, and says what to set."""
    return RowKind.UPDATE_BEFORE not in plan.dropped and not all(
        isinstance(rule, (Register, NamedValues)) for rule in plan.rules
    )


Reader = Callable[[_Changes, Mapping[str, Any]], None]


@dataclass
class _Reading:
    """A body of events that is decoded a piece after the other; ``records`` have come of it so far."""

    read: Reader
    decoder: RecordDecoder
    bounds: Bounds
    records: int = 0

    def decode(self, events: Callable[[], Sequence[object]], first: int = 0) -> DecodedRecords:
        """The records of the next events, the first of which is the event ``first`` of the body."""
        changes = _changes(self.read, events(), self.decoder.plan, first)
        before, self.records = self.records, self.records + len(changes.records)
        self.bounds.check_records(self.records)
        try:
            return decode_records(self.decoder, changes.records, before)
        except Invalid as error:
            told = [_of_event(fault, changes.events, before) for fault in error.violations]
            raise Invalid(
                error.message, code=error.code, violations=told, total_violations=error.total_violations
            ) from error


def json_event_pieces(read: Reader, decoder: RecordDecoder, content: Content, bounds: Bounds) -> Iterator[Piece]:
    """The records of one event, or of a list of them; nothing at all is a tombstone. Raises ``Invalid``, and
    ``TooLarge``.
    """
    reading = _Reading(read, decoder, bounds)
    bounds.check_whole(len(content))
    if len(content) <= bounds.piece_bytes or content[:_SPACE].lstrip()[:1] != b"[":
        bounds.check_record(0 if len(content) <= bounds.piece_bytes else len(content))
        yield partial(reading.decode, partial(_json_events, bytes(content)))
        return
    raws = raw_list(content, bounds)
    for first, last in groups_of(raws, bounds):
        yield partial(reading.decode, partial(parsed_each, enumerate(raws[first:last], first), "event", first), first)


_SPACE = 1000  # before a list; whoever sends more has a body of one event


def ndjson_event_pieces(read: Reader, decoder: RecordDecoder, content: Content, bounds: Bounds) -> Iterator[Piece]:
    """The records of one event a line. Raises ``Invalid``, and ``TooLarge``."""
    reading = _Reading(read, decoder, bounds)
    for texts, before in ndjson_lines(content, bounds):
        yield partial(reading.decode, partial(parsed_each, texts, "line", before), before)


def _changes(read: Reader, events: Sequence[object], plan: MergePlan, first: int) -> _Changes:
    """What ``events`` did; null, Kafka's tombstone, is nothing. Raises ``Invalid`` with every fault by event."""
    changes = _Changes(plan)
    faults: list[Violation] = []
    for number, event in enumerate(events, first):
        changes.event = number
        try:
            if event is not None:
                read(changes, _object(event))
        except _Unusable as error:
            fault = Violation(f"/events/{number}", FaultCode.UNUSABLE_EVENT, str(error), error.fix, number)
            faults.append(fault)
    if faults:
        message, code = f"{len(faults)} event(s) cannot be used; nothing was stored", ErrorCode.INVALID_RECORDS
        raise Invalid(message, code=code, violations=faults[:REPORTED_VIOLATIONS], total_violations=len(faults))
    return changes


def _of_event(fault: Violation, events: Sequence[int], first: int) -> Violation:
    """The fault of a record as one of its event; ``first`` is the number of the record of the first of ``events``."""
    if fault.row is None:
        return fault
    event = events[fault.row - first]
    rest = fault.pointer.removeprefix(f"/records/{fault.row}")
    return replace(fault, pointer=f"/events/{event}{rest}", row=event)


def _object(value: object) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    raise _Unusable("a change event is a JSON object", "send the events of one of the formats that the table reads")


def _row(value: object, where: str, fix: str) -> Row:
    if isinstance(value, Mapping):
        return value
    raise _Unusable(f"the event has no row in {where!r}", fix)


def _json_events(body: bytes) -> Sequence[object]:
    parsed = parse_json(body) if body.strip() else None
    return parsed if isinstance(parsed, list) else [parsed]


def read_debezium(changes: _Changes, event: Mapping[str, Any]) -> None:
    """One event of Debezium, with or without its schema."""
    enveloped = "payload" in event and "op" not in event
    payload = event["payload"] if enveloped else event
    if payload is None:
        return  # a tombstone with its schema
    _debezium_change(changes, _object(payload), event.get("schema") if enveloped else None, None)


def read_cloudevent(changes: _Changes, event: Mapping[str, Any]) -> None:
    """One CloudEvent of Debezium's converter, structured mode."""
    found = event.get("data")
    if found is None:
        return
    held = _object(found)
    enveloped = "payload" in held and "op" not in held
    payload = held["payload"] if enveloped else held
    op = event.get("iodebeziumop")
    _debezium_change(changes, _object(payload), held.get("schema") if enveloped else None, op)


_FULL = "let the database log whole rows (PostgreSQL: REPLICA IDENTITY FULL; MySQL: binlog_row_image=FULL)"


def _debezium_change(changes: _Changes, payload: Mapping[str, Any], schema: object, op: object) -> None:
    op = payload.get("op", op)
    if op not in ("c", "r", "u", "d"):
        what = {"t": "a truncation", "m": "a message"}.get(op, f"op {cut(op)!r}") if isinstance(op, str) else "no op"
        raise _Unusable(
            f"the event is {what}, no change of a row", "skip it (skipped.operations=t), or change the rows"
        )
    before, after = (
        None if payload.get(side) is None else _converted(changes.plan, payload[side], side, schema)
        for side in ("before", "after")
    )
    if op == "d":
        changes.add(RowKind.DELETE, _row(before, "before", _FULL))
    elif op == "u":
        changes.update(before, _row(after, "after", _FULL))
    else:
        changes.add(RowKind.INSERT, _row(after, "after", _FULL))


def _converted(plan: MergePlan, row: object, side: str, schema: object) -> Row:
    values = dict(_row(row, side, _FULL))
    if plan.schema.tells_named:  # what did not change need not be said
        values = {name: value for name, value in values.items() if value != UNAVAILABLE}
    if UNAVAILABLE in values.values():
        raise _Unusable(f"the event lacks a value that did not change ({UNAVAILABLE})", _FULL)
    for name, read in converters(schema, side).items():
        if values.get(name) is not None:
            column = plan.schema.by_name.get(name)
            values[name] = convert(read, values[name], column.type if column else None)
    return values


def read_canal(changes: _Changes, event: Mapping[str, Any]) -> None:
    """One message of Canal: the rows of one statement, every value as text."""
    kind = str(event.get("type", "")).upper()
    if kind in _CANAL_DDL:
        return
    if kind not in ("INSERT", "UPDATE", "DELETE") or event.get("isDdl") is True:
        raise _Unusable(f"the event is {cut(kind) or 'of no type'}, no change of a row", "skip it, or change the rows")
    rows, old = _rows(event.get("data")), _rows(event.get("old") or [])
    for place, row in enumerate(rows):
        after = _from_texts(changes.plan, row)
        if kind == "UPDATE":
            before = {**row, **old[place]} if place < len(old) else None
            changes.update(None if before is None else _from_texts(changes.plan, before), after)
        else:
            changes.add(RowKind.INSERT if kind == "INSERT" else RowKind.DELETE, after)


# What changes no row: a column that the table lacks is refused once a row has it.
_CANAL_DDL = frozenset({"CREATE", "ALTER", "CINDEX", "DINDEX", "QUERY"})


def _rows(value: object) -> Sequence[Row]:
    if not isinstance(value, list):
        raise _Unusable("the event has no list of rows in 'data'", "send Canal's flat messages")
    return [_row(row, "data", "send Canal's flat messages") for row in value]


def _from_texts(plan: MergePlan, row: Row) -> Row:
    """MySQL's texts as JSON would have the values."""
    return {name: _from_text(plan, name, value) for name, value in row.items()}


def _from_text(plan: MergePlan, name: str, value: Any) -> Any:
    column = plan.schema.by_name.get(name)
    if column is None or not isinstance(value, str) or column.type.nested:
        return value
    if column.type.family is Family.BOOLEAN:
        return {"1": True, "0": False}.get(value, column.type.entry.from_text(value))
    return column.type.entry.from_text(value)


def read_maxwell(changes: _Changes, event: Mapping[str, Any]) -> None:
    """One event of Maxwell."""
    kind = event.get("type")
    if isinstance(kind, str) and kind in _MAXWELL_OTHERS:
        return
    if kind not in ("insert", "bootstrap-insert", "update", "delete"):
        raise _Unusable(f"the event is {cut(repr(kind))}, no change of a row", "skip it, or change the rows")
    fix = "send Maxwell's events as they are"
    row = _row(event.get("data"), "data", fix)
    if kind == "update":
        old = event.get("old")
        changes.update(None if old is None else {**row, **_row(old, "old", fix)}, row)
    else:
        changes.add(RowKind.DELETE if kind == "delete" else RowKind.INSERT, row)


_MAXWELL_OTHERS = frozenset(
    {"bootstrap-start", "bootstrap-complete", "table-create", "table-alter", "database-create", "database-alter"}
)

# What reads one event, by the name that Paimon and Flink give its format.
EVENT_FORMATS: Mapping[str, Reader] = {
    "debezium-json": read_debezium,
    "canal-json": read_canal,
    "maxwell-json": read_maxwell,
}
