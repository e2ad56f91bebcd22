"""Faults of a body as a whole, or of one of its columns, before any record is read."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from app.core.errors import ErrorCode, FaultCode, Invalid, Violation, escape_pointer
from app.core.hints import cut
from app.core.plan.records.record_decoder import REPORTED_VIOLATIONS, RecordDecoder, other_name


def unreadable(what: str, error: object, fix: str) -> Invalid:
    """Return the error: the body is not what its media type says."""
    message = f"the body is not {what}: {error}"[:500]
    return Invalid(message, violations=[Violation("", FaultCode.UNREADABLE_BODY, message, fix)])


def column_fault(name: str, code: FaultCode, message: str, fix: str) -> Violation:
    """Return the fault of a whole column."""
    name = cut(name)
    return Violation(f"/columns/{escape_pointer(name)}", code, message, fix, column=name)


def name_faults(names: Sequence[str], decoder: RecordDecoder) -> list[Violation]:
    """Return the columns of a body that the table does not have, or that are there twice: the first ones, for a body
    may have millions.
    """
    faults: list[Violation] = []
    seen: set[str] = set()
    for name in names:
        if name in seen:
            message = f"the body has two columns {cut(name)!r}"
            faults.append(column_fault(name, FaultCode.DUPLICATE_COLUMN, message, "send each column once"))
        elif name not in decoder.names and decoder.unknown_columns is None:
            message = f"the table has no column {cut(name)!r}"
            faults.append(
                column_fault(name, FaultCode.UNKNOWN_COLUMN, message, other_name(decoder.plan.schema.by_name, name))
            )
        if len(faults) > REPORTED_VIOLATIONS:
            break
        seen.add(name)
    return faults


def known_columns(table: pa.Table, decoder: RecordDecoder) -> pa.Table:
    """Return ``table`` without columns that are to be left out."""
    if decoder.unknown_columns is None:
        return table
    return table.select(decoder.unknown_columns.known_of(table.column_names, decoder.names, table.num_rows))


def refuse_columns(faults: Sequence[Violation]) -> None:
    """Raise ``Invalid`` with ``faults``, if there are any."""
    if faults:
        message = f"{len(faults)} fault(s) in the columns; nothing was stored"
        code = ErrorCode.INVALID_RECORDS
        raise Invalid(message, code=code, violations=faults[:REPORTED_VIOLATIONS], total_violations=len(faults))
