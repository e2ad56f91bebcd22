"""Change events of MySQL as Canal and Maxwell send them."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from app.core.hints import cut
from app.core.plan.merging.merge_plan import MergePlan
from app.core.table.records import RowKind
from app.core.types.kinds import Family, Kind
from app.services.bodies.event_changes import Changes, Row, Unusable, row_in
from app.services.bodies.json_bodies import json_text

_LABEL = re.compile(r"'((?:[^']|'')*)'")
_NUMBER = re.compile(r"[0-9]{1,20}")
_FIXED_WIDTH = re.compile(r"binary\(([0-9]{1,3})\)", re.IGNORECASE)
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
    changes.objects = (event,)
    if canal_names_no_row(event):
        changes.skip()
        return
    if kind not in ("INSERT", "UPDATE", "DELETE") or event.get("isDdl") is True:
        raise Unusable(f"the event is {cut(kind) or 'of no type'}, no change of a row", _TRUNCATES)
    rows, old = _rows(event.get("data")), _rows(event.get("old") or [])
    types = event.get("mysqlType")
    plan, declared = changes.plan, types if isinstance(types, dict) else {}
    for place, row in enumerate(rows):
        after = _from_texts(plan, row, declared)
        if kind == "UPDATE":
            before = {**row, **old[place]} if place < len(old) else None
            changes.update(None if before is None else _from_texts(plan, before, declared), after)
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


def _from_texts(plan: MergePlan, row: Row, declared: Mapping[str, Any]) -> Row:
    """Return MySQL's texts as the values that JSON would have; ``declared`` are the types of MySQL's columns."""
    return {name: _from_text(plan, name, value, str(declared.get(name, ""))) for name, value in row.items()}


def _from_text(plan: MergePlan, name: str, value: Any, declared: str) -> Any:
    column = plan.schema.by_name.get(name)
    if not isinstance(value, str):
        return value
    if (labels := _labels_in(declared, value)) is not None:
        return labels if column is not None and column.type.nested else ",".join(labels)
    if column is None or column.type.nested:
        return value
    if column.type.family is Family.BOOLEAN:
        return {"1": True, "0": False}.get(value, column.type.entry.from_text(value))
    if column.type.family is Family.BINARY:  # Canal reads bytes as ISO 8859-1
        try:
            content = value.encode("latin-1")
        except UnicodeEncodeError as error:
            message = f"column {name!r}: its text has characters that no byte is in ISO 8859-1"
            raise Unusable(message, "make the column a STRING, or send its bytes as Canal does", name) from error
        width = _FIXED_WIDTH.fullmatch(declared)  # MySQL's log leaves out the zeros at the end of such a value
        return base64.b64encode(content.ljust(int(width[1]) if width else 0, b"\0")).decode()
    return column.type.entry.from_text(value)


def _labels_in(declared: str, value: str) -> Sequence[str] | None:
    """Return the labels of an ENUM or a SET. Canal sends the number of the label, from 1, or the sum of the bits of
    each. None for another type, and for a text that is a label already.
    """
    family = declared[:5].lower().partition("(")[0]
    if family not in ("enum", "set") or not _NUMBER.fullmatch(value):
        return None
    labels, number = _labels(declared), int(value)
    if family == "enum":
        return ["", *labels][number : number + 1] or None  # 0 is the empty value that MySQL makes of a wrong one
    return [label for place, label in enumerate(labels) if number >> place & 1] if number < 1 << len(labels) else None


@lru_cache(maxsize=1024)
def _labels(declared: str) -> Sequence[str]:
    """Return the labels of ``enum('a','it''s')``."""
    return [label.replace("''", "'") for label in _LABEL.findall(declared)]


def read_maxwell(changes: Changes, event: Mapping[str, Any]) -> None:
    """Read one event of Maxwell. A column that is in ``old`` but not in ``data`` is now null."""
    kind = event.get("type")
    changes.objects = (event,)
    if maxwell_names_no_row(event):
        changes.skip()
        return
    if kind not in ("insert", "bootstrap-insert", "update", "delete"):
        raise Unusable(f"the event is {cut(repr(kind))}, no change of a row", _TRUNCATES)
    fix = "send Maxwell's events as they are"
    row = _from_maxwell(changes.plan, row_in(event.get("data"), "data", fix))
    if kind == "update":
        old = event.get("old")
        known = None if old is None else _from_maxwell(changes.plan, row_in(old, "old", fix))
        after = {**dict.fromkeys(known or ()), **row}
        changes.update(None if known is None else {**after, **known}, after)
    else:
        changes.add(RowKind.DELETE if kind == "delete" else RowKind.INSERT, row)


def _from_maxwell(plan: MergePlan, row: Row) -> Row:
    """Return Maxwell's values as records have them. It writes a TIMESTAMP in UTC, without saying so, and a JSON column
    as JSON, not as text.
    """
    return {name: _adapted(plan, name, value) for name, value in row.items()}


def _adapted(plan: MergePlan, name: str, value: Any) -> Any:
    column = plan.schema.by_name.get(name)
    if column is None:
        return value
    if isinstance(value, str):
        zoned = column.type.kind is Kind.TIMESTAMP_LTZ and value[-1:].isdigit() and "+" not in value
        return f"{value}Z" if zoned else value
    return json_text(value) if isinstance(value, dict) and column.type.family is Family.TEXT else value
