"""JSON bodies as Python values, numbers exact."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

import msgspec

from app.core.errors import ErrorCode, FaultCode, Invalid, Violation, escape_pointer
from app.core.plan.record_decoder import REPORTED_VIOLATIONS


def parse_json(body: bytes) -> object:
    """The JSON of a body, numbers exact. Raises ``Invalid``."""
    try:
        return _loads(body)
    except (ValueError, RecursionError) as error:
        raise _unreadable("", error) from error


class _Records(msgspec.Struct, forbid_unknown_fields=True):
    records: list[msgspec.Raw]


_records_decoder = msgspec.json.Decoder(_Records)
_value_decoder = msgspec.json.Decoder(float_hook=Decimal)


def json_records(body: bytes) -> Sequence[object]:
    """The records of ``{"records": […]}``. Raises ``Invalid``."""
    try:
        # One by one, so that other threads have their turns while a large body is parsed.
        return [_value_decoder.decode(raw) for raw in _records_decoder.decode(body).records]
    except (ValueError, RecursionError, InvalidOperation):
        return _json_records(body)


def _json_records(body: bytes) -> Sequence[object]:
    parsed = parse_json(body)
    records = parsed.get("records") if isinstance(parsed, dict) else None
    if not isinstance(parsed, dict) or not isinstance(records, list):
        fault = Violation(
            "/records", FaultCode.MISSING, "the body has no list of records", 'send {"records": [{…}, …]}'
        )
        raise Invalid("the body is not a batch of records", violations=[fault])
    unknown = [name for name in parsed if name != "records"]
    if unknown:
        faults = [
            Violation(f"/{escape_pointer(name)}", FaultCode.UNKNOWN_MEMBER, f"unknown member {name!r}", "remove it")
            for name in unknown[:REPORTED_VIOLATIONS]
        ]
        raise Invalid("the body is not a batch of records", violations=faults, total_violations=len(unknown))
    return records


def ndjson_records(body: bytes) -> Sequence[object]:
    """One record a line; blank lines are skipped. Lines that are no JSON are reported all together."""
    records: list[object] = []
    faults: list[Violation] = []
    total = 0
    for number, line in enumerate(body.splitlines(), 1):
        if not line.strip():
            continue
        try:
            records.append(_parsed_line(line))
        except (ValueError, RecursionError) as error:
            total += 1
            row = len(records)
            records.append(None)
            if len(faults) < REPORTED_VIOLATIONS:
                message = f"line {number} is not JSON: {error}"
                faults.append(
                    Violation(f"/records/{row}", FaultCode.NOT_JSON, message, "send one JSON object a line", row)
                )
    if total:
        code = ErrorCode.INVALID_RECORDS
        raise Invalid(
            f"{total} line(s) are not JSON; nothing was stored", code=code, violations=faults, total_violations=total
        )
    return records


def _parsed_line(line: bytes) -> object:
    try:
        return _value_decoder.decode(line)
    except (ValueError, RecursionError, InvalidOperation):
        return _loads(line)  # which says what is wrong in the words that it has always had


def _unreadable(pointer: str, error: Exception) -> Invalid:
    message = "the body is nested too deeply" if isinstance(error, RecursionError) else f"the body is not JSON: {error}"
    return Invalid(message, violations=[Violation(pointer, FaultCode.NOT_JSON, message, "send JSON in UTF-8")])


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError("a number has an exponent with too many digits") from None


def _unchanged(parsed: dict[str, Any]) -> dict[str, Any]:
    """A call of Python's for each object: without any, other threads would wait until the last byte is parsed."""
    return parsed


def _loads(text: bytes) -> Any:
    """JSON with exact numbers: those with a fraction or exponent become Decimal; NaN and Infinity are refused."""
    return json.loads(
        text.decode("utf-8"), object_hook=_unchanged, parse_float=_decimal, parse_constant=_refuse_constant
    )
