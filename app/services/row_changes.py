"""One row put or deleted by its key: a batch of one record (design §6)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.core.errors import ErrorCode, FaultCode, Invalid, Violation, escape_pointer
from app.core.plan.bounds import Bounds
from app.core.plan.merge_plan import MergePlan
from app.core.plan.record_decoder import KIND_MEMBER, DecodedRecords, RecordDecoder
from app.core.table.keys import Key, key_from_text, key_to_json, same_key
from app.core.table.records import RowKind
from app.core.table.schema import Column
from app.core.types.values import ValueFault
from app.services.json_bodies import parse_json

_PREFIX = "/records/0"


@dataclass(frozen=True)
class RowChange:
    """One PUT (``deletes`` false) or DELETE of a row: ``key`` as text in primary-key order, ``body`` the other columns
    as a JSON object, or nothing.
    """

    key: tuple[str, ...]
    body: bytes
    deletes: bool
    idempotency_key: str | None = None

    @property
    def fingerprint(self) -> str:
        """A digest of the request, to tell a retry from another request under the same Idempotency-Key."""
        method = "DELETE" if self.deletes else "PUT"
        return hashlib.sha256(json.dumps([method, *self.key]).encode() + b"\0" + self.body).hexdigest()

    def read(self, decoder: RecordDecoder, _bounds: Bounds) -> DecodedRecords:
        """The record to stage. Raises ``Invalid`` with every fault; its pointers are those of the body."""
        schema = decoder.plan.schema
        key = key_from_text(schema, self.key)
        given = self._given()
        faults = _contradictions(schema.key_columns, key, given)
        if self.deletes and RowKind.DELETE in decoder.plan.dropped:
            message = "the table ignores deletes (ignore-delete)"
            faults.append(Violation("", FaultCode.REFUSED_ROW_KIND, message, "alter the table, or PUT the row"))
        if faults:
            raise Invalid("the row cannot be changed so", code=ErrorCode.INVALID_RECORDS, violations=faults)
        kind = _delete_kind(decoder.plan) if self.deletes else {}
        try:
            return decoder.decode([{**given, **key_to_json(schema, key), **kind}])
        except Invalid as error:
            told = [_of_body(fault) for fault in error.violations]
            message = f"{error.total_violations} fault(s) in the row; nothing was stored"
            total = error.total_violations
            raise Invalid(message, code=error.code, violations=told, total_violations=total) from error

    def _given(self) -> dict[str, Any]:
        given = parse_json(self.body) if self.body.strip() else {}
        if not isinstance(given, dict):
            fault = Violation("", FaultCode.NOT_AN_OBJECT, "a row is a JSON object", 'send {"column": value, …}')
            raise Invalid("the body is not a row", violations=[fault])
        if KIND_MEMBER in given:
            message = f"{KIND_MEMBER!r} is what the method says"
            fault = Violation(f"/{KIND_MEMBER}", FaultCode.UNKNOWN_MEMBER, message, "remove it, or POST …/batches")
            raise Invalid("the body is not a row", violations=[fault])
        return given


def _delete_kind(plan: MergePlan) -> Mapping[str, str]:
    return {plan.row_kind_column or KIND_MEMBER: RowKind.DELETE.text}


def _contradictions(columns: Sequence[Column], key: Key, given: Mapping[str, Any]) -> list[Violation]:
    """The key columns that the body repeats with another value than the path has."""
    faults = []
    for column, value in zip(columns, key, strict=True):
        if column.name not in given:
            continue
        try:
            same = same_key((column.type.decoder(given[column.name]),), (value,))
        except ValueFault:
            same = False
        if not same:
            message = f"key column {column.name!r} is not what the path says"
            where = f"/{escape_pointer(column.name)}"
            fix = "leave it out of the body"
            faults.append(Violation(where, FaultCode.CONTRADICTING_KEY, message, fix, column=column.name))
    return faults


def _of_body(fault: Violation) -> Violation:
    return replace(fault, pointer=fault.pointer.removeprefix(_PREFIX), row=None)
