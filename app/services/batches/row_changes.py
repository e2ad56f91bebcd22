"""One row put, patched or deleted by its key: a batch of one record."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from app.core.errors import Conflict, ErrorCode, FaultCode, Invalid, Violation, escape_pointer
from app.core.plan.merging.merge_plan import MergePlan
from app.core.plan.records.bounds import Bounds
from app.core.plan.records.faulty_events import OnFault
from app.core.plan.records.record_decoder import KIND_MEMBER, DecodedRecords, RecordDecoder
from app.core.plan.records.unknown_columns import UnknownColumns
from app.core.table.keys import Key, key_from_text, key_to_json, same_key
from app.core.table.records import RowKind
from app.core.table.schema import Column
from app.core.table.schema_bounds import DEFAULT_BOUNDS, SchemaBounds
from app.core.types.values import ValueFault
from app.services.bodies.json_bodies import parse_json
from app.storage.ingest.pieces import Piece

_PREFIX = "/records/0"


class RowMethod(StrEnum):
    """The change of a row; the value is the HTTP method."""

    PUT = "PUT"  # the columns of the body, as a record says them
    PATCH = "PATCH"  # the members of the body, and no other column (RFC 7396)
    DELETE = "DELETE"


@dataclass(frozen=True)
class RowChange:
    """One change of a row: ``key`` as text in primary-key order, ``body`` the other columns as a JSON object, or
    empty; ``sender`` is the name of the caller's token. ``sequence`` has the values, as text, of sequence fields that
    the body does not have.
    """

    key: tuple[str, ...]
    body: bytes
    method: RowMethod
    idempotency_key: str | None = None
    sender: str = ""
    sequence: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """A digest of the request. A retry has the same digest; another request under the same Idempotency-Key has a
        different one.
        """
        return hashlib.sha256(
            json.dumps([self.method, *self.key, *self._said]).encode() + b"\0" + self.body
        ).hexdigest()

    @property
    def _said(self) -> list[list[str]]:
        return [list(self.sequence)] if self.sequence else []

    @property
    def unknown_columns(self) -> UnknownColumns:
        """Always refused: a row has only the columns of its table."""
        return UnknownColumns.REFUSE

    @property
    def on_fault(self) -> OnFault:
        """A row is no event."""
        return OnFault.REFUSE

    @property
    def schema_bounds(self) -> SchemaBounds:
        """The bounds of any schema; they do not matter, since the columns stay as they are."""
        return DEFAULT_BOUNDS.table

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.body)

    def pieces(self, decoder: RecordDecoder, _bounds: Bounds) -> Iterable[Piece]:
        """Return the record to stage. Raise ``Invalid`` with every fault, with pointers into the body, and
        ``Conflict`` for a PATCH of a table in which a column that is left out is null.
        """
        return [lambda: self._read(decoder)]

    def _read(self, decoder: RecordDecoder) -> DecodedRecords:
        schema = decoder.plan.schema
        if self.method is RowMethod.PATCH and not schema.absent_unchanged:
            message = (
                "the table takes no PATCH: in its records a column that is left out is null; alter it to "
                "record.absent-columns = unchanged (merge-engine partial-update or aggregation), or PUT the row"
            )
            raise Conflict(message, code=ErrorCode.PATCH_NOT_TAKEN)
        key = key_from_text(schema, self.key)
        given = self._given()
        faults = _contradictions(schema.key_columns, key, given)
        if self.method is RowMethod.PATCH:
            faults += _nested_patches(given)
        deletes = self.method is RowMethod.DELETE
        if deletes and RowKind.DELETE in decoder.plan.dropped:
            message = "the table ignores deletes (ignore-delete)"
            faults.append(Violation("", FaultCode.REFUSED_ROW_KIND, message, "alter the table, or PUT the row"))
        ordered, unordered = self._ordered(decoder.plan, given)
        faults += unordered
        given = {**given, **ordered}
        if faults:
            raise Invalid("the row cannot be changed this way", code=ErrorCode.INVALID_RECORDS, violations=faults)
        kind = _delete_kind(decoder.plan) if deletes else {}
        try:
            return decoder.decode([{**given, **key_to_json(schema, key), **kind}])
        except Invalid as error:
            in_body = [_of_body(fault) for fault in error.violations]
            message = f"{error.total_violations} fault(s) in the row; nothing was stored"
            total = error.total_violations
            raise Invalid(message, code=error.code, violations=in_body, total_violations=total) from error

    def _ordered(self, plan: MergePlan, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Violation]]:
        """Return the sequence fields of the query, and their faults: without a sequence the record would lose to every
        other one, so that the request would have no effect.
        """
        fields = [field.column for field in plan.order.fields]
        names = ", ".join(column.name for column in fields)
        if self.sequence and len(self.sequence) != len(fields):
            message = f"the table has {len(fields)} sequence fields, the request gives {len(self.sequence)}"
            fix = f"give one sequence= for each of: {names}" if fields else "remove sequence"
            return {}, [Violation("/sequence", FaultCode.CONTRADICTING_PARAMETERS, message, fix)]
        if self.sequence:
            return _read_sequence(fields, self.sequence)
        sent = [column for column in fields if given.get(column.name) is not None]
        if not fields or sent or any(column.name in plan.write_defaults for column in fields):
            return {}, []
        message = f"without {names}, which orders the records of the table, this change would lose to every other one"
        where = f"/{escape_pointer(fields[0].name)}"
        fix = f"add sequence=<value of {fields[0].name}> to the query, or {fields[0].name} to the body"
        return {}, [Violation(where, FaultCode.MISSING_COLUMN, message, fix, column=fields[0].name)]

    def _given(self) -> dict[str, Any]:
        given = parse_json(self.body) if self.body.strip() else {}
        if not isinstance(given, dict):
            fault = Violation("", FaultCode.NOT_AN_OBJECT, "a row is a JSON object", 'send {"column": value, …}')
            raise Invalid("the body is not a row", violations=[fault])
        if KIND_MEMBER in given:
            message = f"{KIND_MEMBER!r} follows from the HTTP method"
            fault = Violation(f"/{KIND_MEMBER}", FaultCode.UNKNOWN_MEMBER, message, "remove it, or POST …/batches")
            raise Invalid("the body is not a row", violations=[fault])
        return given


def _read_sequence(fields: Sequence[Column], texts: Sequence[str]) -> tuple[dict[str, Any], list[Violation]]:
    values: dict[str, Any] = {}
    faults = []
    for column, text in zip(fields, texts, strict=True):
        try:
            values[column.name] = column.type.encoder(column.type.text_decoder(text))
        except ValueFault as fault:
            message = f"column {column.name!r}: {fault}"
            faults.append(Violation("/sequence", fault.code, message, fault.fix, column=column.name))
    return values, faults


def _delete_kind(plan: MergePlan) -> Mapping[str, str]:
    return {plan.row_kind_column or KIND_MEMBER: RowKind.DELETE.text}


def _nested_patches(given: Mapping[str, Any]) -> list[Violation]:
    """Return the faults of nested members in a PATCH: a nested column is replaced as a whole."""
    message, fix = "a PATCH sets whole columns and cannot change members inside one", "PUT the row with the whole value"
    return [
        Violation(f"/{escape_pointer(name)}", FaultCode.WRONG_TYPE, f"column {name!r}: {message}", fix, column=name)
        for name, value in given.items()
        if isinstance(value, dict)
    ]


def _contradictions(columns: Sequence[Column], key: Key, given: Mapping[str, Any]) -> list[Violation]:
    """Return the faults of key columns whose value in the body differs from the path."""
    faults = []
    for column, value in zip(columns, key, strict=True):
        if column.name not in given:
            continue
        try:
            same = same_key((column.type.decoder(given[column.name]),), (value,))
        except ValueFault:
            same = False
        if not same:
            message = f"key column {column.name!r} differs from the path"
            where = f"/{escape_pointer(column.name)}"
            fix = "leave it out of the body"
            faults.append(Violation(where, FaultCode.CONTRADICTING_KEY, message, fix, column=column.name))
    return faults


def _of_body(fault: Violation) -> Violation:
    return replace(fault, pointer=fault.pointer.removeprefix(_PREFIX), row=None)
