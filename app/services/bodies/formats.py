"""The formats of uploaded records: one entry per media type, with the reader of its bodies and its OpenAPI schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from app.core.errors import FaultCode, Invalid, Violation
from app.core.plan.records.bounds import Bounds
from app.core.plan.records.record_decoder import RecordDecoder
from app.services.bodies.change_events import (
    CLOUDEVENT,
    EVENT_FORMATS,
    EventFormat,
    Events,
    json_event_pieces,
    ndjson_event_pieces,
)
from app.services.bodies.json_bodies import json_pieces, ndjson_pieces
from app.services.shared.unavailable import UNAVAILABLE
from app.storage.ingest.arrow_stream import arrow_pieces
from app.storage.ingest.csv_body import csv_pieces
from app.storage.ingest.parquet_body import parquet_pieces
from app.storage.ingest.pieces import Piece
from app.storage.staging.spool import Content

JSON = "application/json"
NDJSON = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")


Reads = Callable[[RecordDecoder, Content, Bounds], Iterable[Piece]]


@dataclass(frozen=True, eq=False)
class Format:
    """``pieces`` reads a body; it raises ``Invalid`` for a malformed body, or ``TooLarge``. ``schema`` is its OpenAPI
    schema.
    """

    pieces: Reads
    schema: Mapping[str, Any]


# Components of the OpenAPI document: app/api/document/components.py.
_RECORDS = {"$ref": "#/components/schemas/RecordList"}
_EVENT = {"$ref": "#/components/schemas/CloudEvent"}
_TEXT = {"type": "string"}
_BYTES = {"type": "string", "format": "binary"}

CSV, ARROW, PARQUET = "text/csv", "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"
CLOUDEVENTS, CLOUDEVENTS_BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"
# The reader of the records of a body, by its media type.
FORMATS: Mapping[str, Format] = {
    JSON: Format(json_pieces, _RECORDS),
    **dict.fromkeys(NDJSON, Format(ndjson_pieces, _TEXT)),
    CSV: Format(csv_pieces, _TEXT),
    ARROW: Format(arrow_pieces, _BYTES),
    PARQUET: Format(parquet_pieces, _BYTES),
    CLOUDEVENTS: Format(partial(json_event_pieces, Events(CLOUDEVENT)), _EVENT),
    CLOUDEVENTS_BATCH: Format(partial(json_event_pieces, Events(CLOUDEVENT)), {"type": "array", "items": _EVENT}),
}


class EmptyFields(StrEnum):
    """Values of ``emptyFields``: the meaning of an empty CSV field."""

    NULL = "null"
    ABSENT = "absent"  # nothing


_ABSENT_FIELDS = Format(partial(csv_pieces, empty_absent=True), _TEXT)


def format_of(
    media_type: str,
    events: str | None,
    empty_fields: EmptyFields = EmptyFields.NULL,
    unavailable: str = UNAVAILABLE,
    table: str = "",
) -> Format | None:
    """Return the reader of bodies of ``media_type``; None if there is none. ``events`` names a format of change events
    in it.

    Raise ``Invalid`` as ``event_format`` does, and for ``empty_fields`` of a format without fields.
    """
    if empty_fields is EmptyFields.ABSENT and events is None:
        return _absent_fields(media_type)
    chosen = event_format(media_type, events)
    if chosen is None:
        return FORMATS.get(media_type)
    pieces = ndjson_event_pieces if media_type in NDJSON else json_event_pieces
    return Format(partial(pieces, Events(chosen, table, unavailable)), {})


def event_format(media_type: str, events: str | None) -> EventFormat | None:
    """Return the format of the change events in a body, None for one of records.

    Raise ``Invalid`` if ``events`` is no format, or not one for this media type.
    """
    if events is None:
        return CLOUDEVENT if media_type in (CLOUDEVENTS, CLOUDEVENTS_BATCH) else None
    chosen = EVENT_FORMATS.get(events)
    if chosen is None:
        message, fix = f"{events[:100]!r} is not a format of change events", f"use one of: {', '.join(EVENT_FORMATS)}"
        fault = Violation("/format", FaultCode.ENUM, message, fix)
        raise Invalid("the format is not known", violations=[fault])
    if media_type not in (JSON, *NDJSON):
        message = f"change events of {events} are JSON, the body is {media_type[:100]!r}"
        fault = Violation("/format", FaultCode.CONTRADICTING_PARAMETERS, message, f"send {JSON} or {NDJSON[0]}")
        raise Invalid("the format does not fit the media type", violations=[fault])
    return chosen


def _absent_fields(media_type: str) -> Format:
    if media_type != CSV:
        message, fix = f"a body of {media_type[:100]!r} has no empty fields", f"send {CSV}, or remove emptyFields"
        fault = Violation("/emptyFields", FaultCode.CONTRADICTING_PARAMETERS, message, fix)
        raise Invalid("emptyFields is not for this media type", violations=[fault])
    return _ABSENT_FIELDS
