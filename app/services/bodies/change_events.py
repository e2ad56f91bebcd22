"""Change events of databases as records: bodies of one event, of a list of them, or of one a line.

An insert is +I, a delete -D of the row as it was, an update +U of the row as it is. Where the table folds by more than
the latest value, an update is -U of the row as it was, too, so that sums stay right. An update that changes the key is
-D of the old key and +I of the new one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
from typing import Any, Final

from app.core.errors import ErrorCode, FaultCode, Invalid, Violation, escape_pointer
from app.core.hints import printable
from app.core.plan.records.bounds import Bounds
from app.core.plan.records.faulty_events import FaultyEvent
from app.core.plan.records.record_decoder import REPORTED_VIOLATIONS, DecodedRecords, Note, RecordDecoder
from app.services.bodies import event_origins
from app.services.bodies.debezium_events import (
    cloudevent_names_no_row,
    debezium_names_no_row,
    flat_debezium_names_no_row,
    read_cloudevent,
    read_debezium,
    read_flat_debezium,
)
from app.services.bodies.event_changes import Changes, Unusable, object_of
from app.services.bodies.event_origins import Origin, Origins
from app.services.bodies.json_bodies import (
    Numbered,
    groups_of,
    is_list,
    json_text,
    ndjson_lines,
    parse_json,
    parsed_each,
    raw_list,
)
from app.services.bodies.mysql_events import canal_names_no_row, maxwell_names_no_row, read_canal, read_maxwell
from app.services.shared.unavailable import UNAVAILABLE
from app.storage.ingest.lists import decode_records
from app.storage.ingest.pieces import Piece
from app.storage.staging.spool import Content

_TOO_MANY_DIGITS = "widen the column to (6) where its type holds them, or set events.truncate-time = true to cut them"
Decode = Callable[[Sequence[object], int], DecodedRecords]
Reader = Callable[[Changes, Mapping[str, Any]], None]


@dataclass(frozen=True)
class EventFormat:
    """``read`` reads one event, ``origins`` reads its source table, and ``names_no_row`` returns whether it is about
    no row. ``name`` is stored with events that are set aside.
    """

    name: str
    read: Reader
    origins: Origins
    names_no_row: Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class Events:
    """How a body of events is read, and for which ``table``; None takes events of any table of the source.

    ``unavailable`` is the placeholder for values that did not change.
    """

    format: EventFormat
    table: str = ""
    unavailable: str = UNAVAILABLE


@dataclass
class RecordCount:
    """The number of records that the events of a request have become so far."""

    records: int = 0


@dataclass
class _Reading:
    """A body of events that is decoded piece by piece; ``so_far`` counts their records, and ``origin`` is their source
    table.
    """

    events: Events
    decoder: RecordDecoder
    bounds: Bounds
    so_far: RecordCount = field(default_factory=RecordCount)
    origin: Origin | None = None

    def decode(self, events: Callable[[], Sequence[object]], numbers: Iterable[int]) -> DecodedRecords:
        """Return the records of the next events, which have these ``numbers`` in the body."""
        faulty = self.decoder.faulty
        if faulty is None:
            return self._decoded(events(), numbers, partial(decode_records, self.decoder))
        good = [self._decoded([], [], self.decoder.decode)]
        for number, event in zip(numbers, events(), strict=False):
            try:
                good.append(self._decoded([event], [number], self.decoder.decode))
            except Invalid as error:
                faulty.events.append(self._kept_apart(number, event, error))
        return _joined(good)

    def _kept_apart(self, number: int, event: object, error: Invalid) -> FaultyEvent:
        whole = f"/events/{number}"
        faults = [
            replace(
                fault,
                pointer=printable(fault.pointer.removeprefix(whole)),
                message=printable(fault.message),
                fix=printable(fault.fix),
                column=fault.column and printable(fault.column),
                row=None,
            )
            for fault in error.violations
        ]
        return FaultyEvent(number, self.events.format.name, self.events.unavailable, json_text(event), faults)

    def _decoded(self, events: Sequence[object], numbers: Iterable[int], decode: Decode) -> DecodedRecords:
        changes = self._changes(events, numbers)
        before = self.so_far.records
        after = before + len(changes.records)
        self.bounds.check_records(after)
        try:
            decoded = decode(changes.records, before)
        except Invalid as error:
            faults = [_of_event(fault, changes.events, before) for fault in error.violations]
            raise Invalid(
                error.message, code=error.code, violations=faults, total_violations=error.total_violations
            ) from error
        self.so_far.records = after
        decoded.notes.update(changes.notes)
        return decoded

    def _changes(self, events: Sequence[object], numbers: Iterable[int]) -> Changes:
        """Return the changes of ``events``; null, Kafka's tombstone, is ignored. Raise ``Invalid`` with every fault by
        event.
        """
        unknown = self.decoder.unknown_columns
        changes = Changes(self.decoder.plan, self.events.unavailable, None if unknown is None else unknown.declared)
        faults: list[Violation] = []
        for number, event in zip(numbers, events, strict=False):
            changes.event = number
            try:
                self._read(changes, event)
            except Unusable as error:
                inside = f"/{escape_pointer(error.column)}" if error.column is not None else ""
                where = f"/events/{number}{inside}"
                faults.append(Violation(where, error.code, str(error), error.fix, number, error.column))
        if faults:
            raise unusable_events(faults, len(faults))
        return changes

    def _read(self, changes: Changes, sent: object) -> None:
        if sent is None:
            changes.skip()
            return
        event, how = object_of(sent), self.events.format
        origin = how.origins.origin(event) if self.events.table else None
        if origin is not None and self._is_foreign(origin):
            if not how.names_no_row(event):
                raise _foreign(origin, self.origin, self.events.table)
            changes.skip()
            return
        how.read(changes, event)

    def _is_foreign(self, origin: Origin) -> bool:
        """Return whether the events of ``origin`` are for another table. A table that declares no source takes the
        events with its name, from one schema per body.
        """
        if origin == self.origin:
            return False
        declared: Sequence[str] = self.decoder.plan.schema.parsed["events.source"]
        if not origin.feeds(self.events.table, declared):
            return True
        self.origin = self.origin or origin
        return not declared and origin != self.origin


def _joined(parts: Sequence[DecodedRecords]) -> DecodedRecords:
    """Return the records of all parts, as lists by column."""
    notes = sum((Counter(part.notes) for part in parts), Counter[Note]())
    return DecodedRecords(
        {name: [*chain.from_iterable(part.columns[name] for part in parts)] for name in parts[0].columns},
        [*chain.from_iterable(part.kinds for part in parts)],
        [*chain.from_iterable(part.positions for part in parts)],
        sum(part.ignored for part in parts),
        {word: [*chain.from_iterable(part.words[word] for part in parts)] for word in parts[0].words},
        dict(notes),
    )


def _foreign(origin: Origin, first: Origin | None, table: str) -> Unusable:
    among = f", and others of this body are of {first.shown}" if first is not None and first != origin else ""
    message = f"the event is of {origin.shown}, which {table!r} does not take{among}"
    fix = (
        f"set events.source = {origin.shown} if it belongs here; POST /v1/catalog/databases/{{database}}/batches takes "
        "events of all tables"
    )
    return Unusable(message, fix, code=FaultCode.FOREIGN_EVENT)


def unusable_events(faults: Sequence[Violation], total: int) -> Invalid:
    """Return the error for a body with such events."""
    message, code = f"{total} event(s) cannot be used; nothing was stored", ErrorCode.INVALID_RECORDS
    return Invalid(message, code=code, violations=faults[:REPORTED_VIOLATIONS], total_violations=total)


def json_event_pieces(events: Events, decoder: RecordDecoder, content: Content, bounds: Bounds) -> Iterator[Piece]:
    """Yield the records of one event, or of a list of them; an empty body is a tombstone. Raise ``Invalid``, and
    ``TooLarge``.
    """
    reading = _Reading(events, decoder, bounds)
    bounds.check_whole(len(content))
    if len(content) <= bounds.piece_bytes or not is_list(content):
        bounds.check_record(0 if len(content) <= bounds.piece_bytes else len(content))
        yield partial(reading.decode, partial(_json_events, bytes(content)), count())
        return
    raws = raw_list(content, bounds)
    yield from _grouped(reading, [*enumerate(raws)], range(len(raws)), "event")


def ndjson_event_pieces(events: Events, decoder: RecordDecoder, content: Content, bounds: Bounds) -> Iterator[Piece]:
    """Yield the records of one event a line. Raise ``Invalid``, and ``TooLarge``."""
    reading = _Reading(events, decoder, bounds)
    for texts, before in ndjson_lines(content, bounds):
        rows = range(before, before + len(texts))
        yield partial(reading.decode, partial(parsed_each, texts, "line", rows), rows)


def chosen_event_pieces(
    events: Events,
    texts: Sequence[Numbered],
    rows: Sequence[int],
    noun: str,
    decoder: RecordDecoder,
    bounds: Bounds,
    so_far: RecordCount | None = None,
) -> Iterator[Piece]:
    """Yield the records of some events of a body, those of the numbers ``rows``. Raise as ``ndjson_event_pieces``.

    ``so_far`` counts the records of other events of the same request, which come before these.
    """
    return _grouped(_Reading(events, decoder, bounds, so_far or RecordCount()), texts, rows, noun)


def _grouped(reading: _Reading, texts: Sequence[Numbered], rows: Sequence[int], noun: str) -> Iterator[Piece]:
    for first, last in groups_of([text for _, text in texts], reading.bounds):
        some = rows[first:last]
        yield partial(reading.decode, partial(parsed_each, texts[first:last], noun, some), some)


def _of_event(fault: Violation, events: Sequence[int], first: int) -> Violation:
    """Return the fault of a record as a fault of its event; ``first`` is the number of the first event's record."""
    if fault.row is None:
        return fault
    event = events[fault.row - first]
    rest = fault.pointer.removeprefix(f"/records/{fault.row}")
    fix = _TOO_MANY_DIGITS if fault.code == FaultCode.TOO_MANY_DIGITS else fault.fix
    return replace(fault, pointer=f"/events/{event}{rest}", row=event, fix=fix)


def _json_events(body: bytes) -> Sequence[object]:
    """Return the events of a small body. Raise ``Invalid``."""
    parsed = parse_json(body) if body.strip() else None
    return parsed if isinstance(parsed, list) else [parsed]


CLOUDEVENT: Final = EventFormat("cloudevents", read_cloudevent, event_origins.CLOUDEVENT, cloudevent_names_no_row)
_NAMED: Final = (
    EventFormat("debezium-json", read_debezium, event_origins.DEBEZIUM, debezium_names_no_row),
    EventFormat("debezium-flat-json", read_flat_debezium, event_origins.FLAT_DEBEZIUM, flat_debezium_names_no_row),
    EventFormat("canal-json", read_canal, event_origins.STATEMENT, canal_names_no_row),
    EventFormat("maxwell-json", read_maxwell, event_origins.STATEMENT, maxwell_names_no_row),
)
# What reads one event, by the name that Paimon and Flink give its format.
EVENT_FORMATS: Mapping[str, EventFormat] = {event_format.name: event_format for event_format in _NAMED}
STORED_FORMATS: Mapping[str, EventFormat] = {**EVENT_FORMATS, CLOUDEVENT.name: CLOUDEVENT}
