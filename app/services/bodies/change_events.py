"""Change events of databases as records: bodies of one event, of a list of them, or of one a line.

An insert is +I, a delete -D of the row as it was, an update +U of the row as it is. Where the table folds by more than
the latest value, an update is -U of the row as it was, too, so that sums stay right. An update that changes the key is
-D of the old key and +I of the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from app.core.errors import ErrorCode, FaultCode, Invalid, Violation, escape_pointer
from app.core.plan.records.bounds import Bounds
from app.core.plan.records.record_decoder import REPORTED_VIOLATIONS, DecodedRecords, RecordDecoder
from app.services.bodies.debezium_events import read_cloudevent, read_debezium, read_flat_debezium
from app.services.bodies.event_changes import Changes, Unusable, object_of
from app.services.bodies.json_bodies import groups_of, ndjson_lines, parse_json, parsed_each, raw_list
from app.services.bodies.mysql_events import read_canal, read_maxwell
from app.services.shared.unavailable import UNAVAILABLE
from app.storage.ingest.lists import decode_records
from app.storage.ingest.pieces import Piece
from app.storage.staging.spool import Content

__all__ = ["EVENT_FORMATS", "json_event_pieces", "ndjson_event_pieces", "read_cloudevent"]

_TOO_MANY_DIGITS = "widen the column to (6) where its type holds them, or set events.truncate-time = true to cut them"
Reader = Callable[[Changes, Mapping[str, Any]], None]


@dataclass
class _Reading:
    """A body of events that is decoded a piece after the other; ``records`` have come of it so far."""

    read: Reader
    decoder: RecordDecoder
    bounds: Bounds
    unavailable: str
    records: int = 0

    def decode(self, events: Callable[[], Sequence[object]], first: int = 0) -> DecodedRecords:
        """Return the records of the next events, the first of which is the event ``first`` of the body."""
        changes = self._changes(events(), first)
        before, self.records = self.records, self.records + len(changes.records)
        self.bounds.check_records(self.records)
        try:
            decoded = decode_records(self.decoder, changes.records, before)
        except Invalid as error:
            faults = [_of_event(fault, changes.events, before) for fault in error.violations]
            raise Invalid(
                error.message, code=error.code, violations=faults, total_violations=error.total_violations
            ) from error
        decoded.notes.update(changes.notes)
        return decoded

    def _changes(self, events: Sequence[object], first: int) -> Changes:
        """Return what ``events`` did; null, Kafka's tombstone, is nothing. Raise ``Invalid`` with every fault by
        event.
        """
        changes = Changes(self.decoder.plan, self.unavailable)
        faults: list[Violation] = []
        for number, event in enumerate(events, first):
            changes.event = number
            try:
                if event is None:
                    changes.skip()
                else:
                    self.read(changes, object_of(event))
            except Unusable as error:
                inside = f"/{escape_pointer(error.column)}" if error.column is not None else ""
                where = f"/events/{number}{inside}"
                fault = Violation(where, FaultCode.UNUSABLE_EVENT, str(error), error.fix, number, error.column)
                faults.append(fault)
        if faults:
            message, code = f"{len(faults)} event(s) cannot be used; nothing was stored", ErrorCode.INVALID_RECORDS
            raise Invalid(message, code=code, violations=faults[:REPORTED_VIOLATIONS], total_violations=len(faults))
        return changes


def json_event_pieces(
    read: Reader, decoder: RecordDecoder, content: Content, bounds: Bounds, unavailable: str = UNAVAILABLE
) -> Iterator[Piece]:
    """Yield the records of one event, or of a list of them; nothing at all is a tombstone. Raise ``Invalid``, and
    ``TooLarge``.
    """
    reading = _Reading(read, decoder, bounds, unavailable)
    bounds.check_whole(len(content))
    if len(content) <= bounds.piece_bytes or content[:_SPACE].lstrip()[:1] != b"[":
        bounds.check_record(0 if len(content) <= bounds.piece_bytes else len(content))
        yield partial(reading.decode, partial(_json_events, bytes(content)))
        return
    raws = raw_list(content, bounds)
    for first, last in groups_of(raws, bounds):
        yield partial(reading.decode, partial(parsed_each, enumerate(raws[first:last], first), "event", first), first)


_SPACE = 1000  # before a list; anyone who sends more has a body of one event


def ndjson_event_pieces(
    read: Reader, decoder: RecordDecoder, content: Content, bounds: Bounds, unavailable: str = UNAVAILABLE
) -> Iterator[Piece]:
    """Yield the records of one event a line. Raise ``Invalid``, and ``TooLarge``."""
    reading = _Reading(read, decoder, bounds, unavailable)
    for texts, before in ndjson_lines(content, bounds):
        yield partial(reading.decode, partial(parsed_each, texts, "line", before), before)


def _of_event(fault: Violation, events: Sequence[int], first: int) -> Violation:
    """Return the fault of a record as one of its event; ``first`` is the number of the record of the first of
    ``events``.
    """
    if fault.row is None:
        return fault
    event = events[fault.row - first]
    rest = fault.pointer.removeprefix(f"/records/{fault.row}")
    fix = _TOO_MANY_DIGITS if fault.code == FaultCode.TOO_MANY_DIGITS else fault.fix
    return replace(fault, pointer=f"/events/{event}{rest}", row=event, fix=fix)


def _json_events(body: bytes) -> Sequence[object]:
    parsed = parse_json(body) if body.strip() else None
    return parsed if isinstance(parsed, list) else [parsed]


# What reads one event, by the name that Paimon and Flink give its format.
EVENT_FORMATS: Mapping[str, Reader] = {
    "debezium-json": read_debezium,
    "debezium-flat-json": read_flat_debezium,
    "canal-json": read_canal,
    "maxwell-json": read_maxwell,
}
