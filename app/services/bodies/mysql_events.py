"""Change events of MySQL as Canal and Maxwell send them."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from app.core.hints import cut
from app.core.plan.merging.merge_plan import MergePlan
from app.core.table.records import RowKind
from app.core.types.kinds import Family, Kind
from app.services.bodies.event_changes import Changes, Row, Unusable, row_in

_FLAT = "send Canal's flat messages"
# What changes no row: a column that the table lacks is refused once a row has it.
_CANAL_NO_ROW = frozenset({"CREATE", "ALTER", "CINDEX", "DINDEX", "QUERY", "RENAME", "MHEARTBEAT"})
_MAXWELL_NO_ROW = frozenset(
    {
        "bootstrap-start",
        "bootstrap-complete",
        "table-create",
        "table-alter",
        "database-create",
        "database-alter",
        "heartbeat",
    }
)
_TRUNCATES = "it removes rows without naming them: delete them with -D records, or drop and create the table"


def read_canal(changes: Changes, event: Mapping[str, Any]) -> None:
    """Read one message of Canal: the rows of one statement, every value as text."""
    kind = str(event.get("type", "")).upper()
    changes.said = (event,)
    if canal_names_no_row(event):
        changes.skip()
        return
    if kind not in ("INSERT", "UPDATE", "DELETE") or event.get("isDdl") is True:
        raise Unusable(f"the event is {cut(kind) or 'of no type'}, no change of a row", _TRUNCATES)
    rows, old = _rows(event.get("data")), _rows(event.get("old") or [])
    for place, row in enumerate(rows):
        after = _from_texts(changes.plan, row)
        if kind == "UPDATE":
            before = {**row, **old[place]} if place < len(old) else None
            changes.update(None if before is None else _from_texts(changes.plan, before), after)
        else:
            changes.add(RowKind.INSERT if kind == "INSERT" else RowKind.DELETE, after)


def canal_names_no_row(event: Mapping[str, Any]) -> bool:
    """Return whether a message of Canal is about no row."""
    return str(event.get("type", "")).upper() in _CANAL_NO_ROW


def maxwell_names_no_row(event: Mapping[str, Any]) -> bool:
    """Return whether an event of Maxwell is about no row."""
    kind = event.get("type")
    return isinstance(kind, str) and kind in _MAXWELL_NO_ROW


def _rows(value: object) -> Sequence[Row]:
    if not isinstance(value, list):
        raise Unusable("the event has no list of rows in 'data'", _FLAT)
    return [row_in(row, "data", _FLAT) for row in value]


def _from_texts(plan: MergePlan, row: Row) -> Row:
    """Return MySQL's texts as the values that JSON would have."""
    return {name: _from_text(plan, name, value) for name, value in row.items()}


def _from_text(plan: MergePlan, name: str, value: Any) -> Any:
    column = plan.schema.by_name.get(name)
    if column is None or not isinstance(value, str) or column.type.nested:
        return value
    if column.type.family is Family.BOOLEAN:
        return {"1": True, "0": False}.get(value, column.type.entry.from_text(value))
    if column.type.family is Family.BINARY:  # Canal reads bytes as ISO 8859-1
        try:
            return base64.b64encode(value.encode("latin-1")).decode()
        except UnicodeEncodeError as error:
            message = f"column {name!r}: its text has characters that no byte is in ISO 8859-1"
            raise Unusable(message, "make the column a STRING, or send its bytes as Canal does", name) from error
    return column.type.entry.from_text(value)


def read_maxwell(changes: Changes, event: Mapping[str, Any]) -> None:
    """Read one event of Maxwell. A column that is in ``old`` but not in ``data`` is now null."""
    kind = event.get("type")
    changes.said = (event,)
    if maxwell_names_no_row(event):
        changes.skip()
        return
    if kind not in ("insert", "bootstrap-insert", "update", "delete"):
        raise Unusable(f"the event is {cut(repr(kind))}, no change of a row", _TRUNCATES)
    fix = "send Maxwell's events as they are"
    row = _in_utc(changes.plan, row_in(event.get("data"), "data", fix))
    if kind == "update":
        old = event.get("old")
        known = None if old is None else _in_utc(changes.plan, row_in(old, "old", fix))
        after = {**dict.fromkeys(known or ()), **row}
        changes.update(None if known is None else {**after, **known}, after)
    else:
        changes.add(RowKind.DELETE if kind == "delete" else RowKind.INSERT, row)


def _in_utc(plan: MergePlan, row: Row) -> Row:
    """Return a TIMESTAMP with its zone: Maxwell writes these columns in UTC, without saying so."""
    return {name: _zoned(plan, name, value) for name, value in row.items()}


def _zoned(plan: MergePlan, name: str, value: Any) -> Any:
    column = plan.schema.by_name.get(name)
    zoned = column is not None and column.type.kind is Kind.TIMESTAMP_LTZ and isinstance(value, str)
    return f"{value}Z" if zoned and value[-1:].isdigit() and "+" not in value else value
