"""Change events of Debezium: its envelope, alone or in a CloudEvent, and rows without one (ExtractNewRecordState)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.core.hints import cut
from app.core.plan.records.record_decoder import Note
from app.core.table.records import RowKind
from app.services.bodies.debezium_types import declared_columns
from app.services.bodies.debezium_values import Unreadable, readers, row_fields, sends_defaults
from app.services.bodies.event_changes import WHOLE_ROWS, Changes, Row, Unusable, object_of, row_in
from app.services.shared.unavailable import is_unavailable, members_unavailable

_OPS = ("c", "r", "u", "d")  # no set: what is sent may be a list, which no set can look for
_TRUNCATED = (
    "let Debezium leave it out (skipped.operations=t, its default), and delete the rows with -D records, or drop and "
    "create the table"
)
_NO_ENVELOPE = "send Debezium's envelope; for rows without it (ExtractNewRecordState) use format=debezium-flat-json"
_DOCUMENT = (
    "MongoDB's connector sends documents as text: use the transform ExtractNewDocumentState, and "
    "format=debezium-flat-json"
)
_NO_DATA = "send CloudEvents of Debezium's converter in structured mode, with their data as JSON"
_TIMES = frozenset({"ts_ms", "ts_us", "ts_ns"})  # all that a heartbeat has
_BOUNDARY = _TIMES | {"status", "id", "event_count", "data_collections"}  # all that a transaction's begin or end has
_WRAPPER = frozenset({"schema", "payload"})  # all that Kafka Connect's JSON converter adds
_FLAT_OP, _FLAT_DELETED = "__op", "__deleted"
# Placeholders of a delete of which only the key was logged: nulls, and what NOT NULL columns without a default get.
_MADE_UP: tuple[Any, ...] = (
    *(None, 0, 0.0, "", "AA==", "0", "{}", [], {}, {"scale": 0, "value": "AA=="}),
    *("1970-01-01", "1970-01-01Z", "00:00:00Z", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00"),
)


def read_debezium(changes: Changes, event: Mapping[str, Any]) -> None:
    """Read one event of Debezium, with or without its schema, with or without an envelope."""
    payload, schema = _opened(event)
    changes.objects = (payload or {},)
    if payload is None:
        changes.skip()  # a tombstone with its schema
    elif "op" not in payload and (_FLAT_OP in payload or _FLAT_DELETED in payload):
        _flat_change(changes, payload, schema)
    else:
        _change(changes, payload, schema, payload.get("op"))


def read_flat_debezium(changes: Changes, event: Mapping[str, Any]) -> None:
    """Read one row that ExtractNewRecordState, or ExtractNewDocumentState, has made of an event."""
    payload, schema = _opened(event)
    changes.objects = (payload or {},)
    if payload is None:
        changes.skip()
    else:
        _flat_change(changes, payload, schema)


def read_cloudevent(changes: Changes, event: Mapping[str, Any]) -> None:
    """Read one CloudEvent of Debezium's converter, structured mode."""
    payload, schema = _enclosed(event)
    changes.objects = (payload or {}, event)
    if payload is None:
        changes.skip()
    else:
        _change(changes, payload, schema, payload.get("op", event.get("iodebeziumop")))


def debezium_names_no_row(event: Mapping[str, Any]) -> bool:
    """Return whether an event of Debezium is about no row."""
    payload, _ = _opened(event)
    return payload is None or _is_mark(payload, payload.get("op"))


def flat_debezium_names_no_row(event: Mapping[str, Any]) -> bool:
    """Return whether a row of ExtractNewRecordState is about no row: it lets heartbeats through."""
    payload, _ = _opened(event)
    return payload is None or _is_heartbeat(payload)


def cloudevent_names_no_row(event: Mapping[str, Any]) -> bool:
    """Return whether a CloudEvent of Debezium is about no row."""
    payload, _ = _enclosed(event)
    return payload is None or _is_mark(payload, payload.get("op", event.get("iodebeziumop")))


def _is_mark(payload: Mapping[str, Any], op: object) -> bool:
    """Return whether the event is a message, a heartbeat, a transaction boundary, or a change of a schema."""
    return op == "m" or (op is None and (_is_boundary(payload) or _alters(payload) or _is_heartbeat(payload)))


def _is_boundary(payload: Mapping[str, Any]) -> bool:
    # A row without an envelope may have a column of this name: it is to be refused, not left out.
    return payload.get("status") in ("BEGIN", "END") and payload.keys() <= _BOUNDARY


def _alters(payload: Mapping[str, Any]) -> bool:
    return "tableChanges" in payload or payload.keys() >= {"ddl", "databaseName"}


def _is_heartbeat(payload: Mapping[str, Any]) -> bool:
    return bool(payload) and payload.keys() <= _TIMES


def _opened(event: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, object]:
    """Return the payload of an event of Kafka Connect's JSON converter, and its schema. Other members show that
    ``payload`` is a column of a row.
    """
    if "payload" not in event or not event.keys() <= _WRAPPER:
        return event, None
    payload = event["payload"]
    return (None if payload is None else object_of(payload)), event.get("schema")


def _enclosed(event: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, object]:
    """Return the payload in the data of a CloudEvent, and its schema. Raise ``Unusable``."""
    enclosed = event.get("data")
    if enclosed is not None:
        return _opened(object_of(enclosed))
    if "data_base64" in event:
        raise Unusable("the data of the event is base64", _NO_DATA)
    if "specversion" not in event and not _is_mark(event, None):
        raise Unusable("the event is no CloudEvent", _NO_DATA)
    return None, None


def _change(changes: Changes, payload: Mapping[str, Any], schema: object, op: object) -> None:
    if _is_mark(payload, op):
        changes.skip()
        return
    if op == "t":
        raise Unusable("the event is a truncation, which removes rows without naming them", _TRUNCATED)
    if op not in _OPS:
        what = f"op {cut(op)!r}" if isinstance(op, str) else "no op"
        raise Unusable(f"the event is {what}, no change of a row", _NO_ENVELOPE)
    if isinstance(payload.get("after"), str):
        raise Unusable("the row in 'after' is a text", _DOCUMENT)
    if sends_defaults(schema):
        changes.note(Note.NULL_OR_DEFAULT)
    before = _side(changes, payload, schema, "before", changed=op == "u")
    after = _side(changes, payload, schema, "after", changed=op == "u")
    if op == "d":
        row = row_in(before, "before", WHOLE_ROWS)
        changes.add(RowKind.DELETE, _logged(changes, row, payload["before"], row_fields(schema, "before")))
    elif op == "u":
        changes.update(before, row_in(after, "after", WHOLE_ROWS))
    else:
        changes.add(RowKind.INSERT, row_in(after, "after", WHOLE_ROWS))


def _side(changes: Changes, payload: Mapping[str, Any], schema: object, side: str, *, changed: bool) -> Row | None:
    row = payload.get(side)
    return None if row is None else _converted(changes, row, schema, side, changed=changed)


def _flat_change(changes: Changes, payload: Mapping[str, Any], schema: object) -> None:
    op, names = payload.get(_FLAT_OP), changes.plan.schema.by_name
    if _is_heartbeat(payload) and not payload.keys() & names.keys():
        changes.skip()
        return
    if op == "t":
        raise Unusable("the event is a truncation, which removes rows without naming them", _TRUNCATED)
    deleted = op == "d" or str(payload.get(_FLAT_DELETED)).lower() == "true"
    members = {name: value for name, value in payload.items() if name in names or not name.startswith("__")}
    row = _converted(changes, members, schema, None, changed=not deleted)
    if deleted:
        changes.add(RowKind.DELETE, _logged(changes, row, members, row_fields(schema, None)))
    elif op == "u":
        changes.update(None, row)
    else:
        changes.add(RowKind.INSERT, row)


def _logged(changes: Changes, row: Row, sent: Row, fields: Sequence[Mapping[str, Any]]) -> Row:
    """Return the logged columns of a deleted row: its key alone if all others may be made up (REPLICA IDENTITY
    DEFAULT). ``sent`` has the values as Debezium encodes them, ``fields`` is their schema, if there is one.
    """
    keys = set(changes.plan.schema.primary_key)
    declared = {str(field.get("field")): field for field in fields}
    if all(name in keys or _is_made_up(value, declared.get(name, {})) for name, value in sent.items()):
        return {name: value for name, value in row.items() if name in keys}
    return row


def _is_made_up(value: Any, field: Mapping[str, Any]) -> bool:
    """Return whether Debezium may have made up the value of a column that was not logged: null, or if the column is NOT
    NULL its default or a placeholder. Kafka's converter can send the default for null.
    """
    default = field.get("default")
    if value is None or (default is not None and value == default):
        return True
    return default is None and field.get("optional") is not True and value in _MADE_UP


def _converted(changes: Changes, row: object, schema: object, side: str | None, *, changed: bool) -> Row:
    """Return the row with its values as in JSON. Unchanged values are left out if the table can
    keep the present ones.
    """
    plan, placeholder = changes.plan, changes.unavailable
    if changes.declared is not None and schema is not None:
        changes.declare(declared_columns(schema, side))
    values = dict(row_in(row, side or "the event", WHOLE_ROWS))
    for name in members_unavailable(values, placeholder):
        whole = is_unavailable(values[name], placeholder) and name not in plan.schema.primary_key
        if not (whole and changed and plan.schema.absent_unchanged):
            raise Unusable(f"the event lacks a value that did not change ({cut(placeholder)})", _fix(changed), name)
        del values[name]
    for name, read in readers(schema, side).items():
        column = plan.schema.by_name.get(name)
        if values.get(name) is not None:
            try:
                values[name] = read(values[name], column.type if column else None)
            except Unreadable as error:
                raise Unusable(f"column {name!r}: {error}", error.fix, name) from error
    for name in changes.local_columns:
        value = values.get(name)
        if isinstance(value, str) and value.endswith("Z"):  # with time.precision.mode=isostring
            values[name] = value[:-1]
    return values


def _fix(changed: bool) -> str:
    whole = "set record.absent-columns = unchanged (merge-engine partial-update or aggregation), or "
    return f"{whole if changed else ''}{WHOLE_ROWS}"
