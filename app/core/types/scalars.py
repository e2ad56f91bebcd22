"""Scalar values of each data type, read strictly from JSON or text, written as JSON (design §6)."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any

from app.core.errors import FaultCode
from app.core.types.kinds import DataType
from app.core.types.numbers import EXACT, INTEGER_BITS, as_float32


class ValueFault(ValueError):
    """A value that its column cannot take; ``path`` leads to it inside a nested value (JSON pointer segments)."""

    def __init__(self, code: FaultCode, message: str, fix: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.fix = fix
        self.path = path

    def inside(self, segment: object) -> ValueFault:
        """The same fault, seen from one level further out."""
        return ValueFault(self.code, str(self), self.fix, (str(segment), *self.path))


Decode = Callable[[Any], Any]
Encode = Callable[[Any], Any]


@dataclass(frozen=True)
class ValueForm:
    """How the values of one kind of type are read from JSON (never null) and from text, and written as JSON."""

    decode: Callable[[DataType], Decode]
    encode: Callable[[DataType], Encode]
    from_text: Callable[[DataType, str], Any] | None = None


def wrong(expected: str, value: object, fix: str) -> ValueFault:
    """The fault of a value that is of another type."""
    return ValueFault(FaultCode.WRONG_TYPE, f"{shown(value)} is not {expected}", fix)


def shown(value: object) -> str:
    """A value as messages show it, cut to 60 characters."""
    try:
        text = repr(value) if not isinstance(value, Decimal) else str(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."


def _boolean(_: DataType) -> Decode:
    def decode(value: Any) -> bool:
        if not isinstance(value, bool):
            raise wrong("a BOOLEAN", value, "send true or false")
        return value

    return decode


_NUMERAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
MOST_DIGITS = 1000  # of a number in text: more are no value of any type, and reading thousands takes its time


def _number(value: Any) -> Any:
    """A number that was sent as text (A.9), exactly; any other value as it is."""
    if not isinstance(value, str) or len(value) > MOST_DIGITS or not _NUMERAL.fullmatch(value):
        return value
    return Decimal(value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _integer(data_type: DataType) -> Decode:
    half = 1 << INTEGER_BITS[data_type.kind] - 1
    low, high = -half, half - 1

    def decode(value: Any) -> int:
        if type(value) is not int:
            value = _whole(value, data_type)
        if not low <= value <= high:
            message = f"{shown(value)} is out of range for {data_type.kind}"
            raise ValueFault(FaultCode.OUT_OF_RANGE, message, f"send {low} to {high}")
        return int(value)

    return decode


def _whole(value: Any, data_type: DataType) -> Any:
    """A number without fraction, however it is written: 5, 5.0, 1e3, or one of these as text (A.9)."""
    number = _number(value)
    if not _is_number(number):
        raise wrong(f"a whole number ({data_type.kind})", value, 'send a number, or its text, like "5"')
    exact = Decimal(number)
    if not exact.is_finite():
        raise ValueFault(
            FaultCode.OUT_OF_RANGE, f"{shown(value)} is out of range for {data_type.kind}", "send a finite number"
        )
    if exact == 0:
        return 0
    if exact.adjusted() > 40:
        return exact  # out of any range; written out it could have a million digits
    if exact.adjusted() < 0 or exact != exact.to_integral_value():
        message = f"{shown(value)} has a fraction, which {data_type.kind} does not hold"
        raise ValueFault(FaultCode.WRONG_TYPE, message, "send a number without fraction")
    return int(exact)


# How JSON writes what it has no numbers for (A.11).
_NOT_FINITE: Mapping[str, float] = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}


def _floating(data_type: DataType) -> Decode:
    single = data_type.kind == "FLOAT"

    def decode(value: Any) -> float:
        if isinstance(value, str) and value in _NOT_FINITE:
            return _NOT_FINITE[value]
        number = _number(value)
        if not _is_number(number):
            fix = 'send a JSON number, its text, or "NaN", "Infinity" or "-Infinity"'
            raise wrong(f"a number ({data_type.kind})", value, fix)
        read = _as_float(number)
        read = as_float32(read) if single else read
        if not math.isfinite(read):
            message = f"{shown(value)} is out of range for {data_type.kind}"
            raise ValueFault(FaultCode.OUT_OF_RANGE, message, 'send a finite number, or "Infinity" or "NaN" as text')
        return read

    return decode


def _as_float(number: float | Decimal) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf")


def _decimal(data_type: DataType) -> Decode:
    precision, scale = data_type.precision or 0, data_type.scale or 0
    unit = Decimal(1).scaleb(-scale)

    def decode(value: Any) -> Decimal:
        sent, value = value, _number(value)
        if not _is_number(value):
            raise wrong(f"a {data_type.base_sql}", sent, 'send a number or its decimal text, like "12.50"')
        number = Decimal(str(value)) if isinstance(value, float) else Decimal(value)
        if not number.is_finite() or (number.adjusted() >= precision - scale and number != 0):
            message = f"{shown(value)} is out of range for {data_type.base_sql}"
            raise ValueFault(FaultCode.OUT_OF_RANGE, message, f"at most {precision - scale} digits before the point")
        return _scaled(number, unit, data_type)

    return decode


def _scaled(number: Decimal, unit: Decimal, data_type: DataType) -> Decimal:
    try:
        scaled = number.quantize(unit, context=EXACT)
    except InvalidOperation:
        scaled = Decimal("NaN")
    if scaled != number:
        message = f"{shown(number)} has more than {data_type.scale} digits after the point ({data_type.base_sql})"
        raise ValueFault(FaultCode.TOO_MANY_DIGITS, message, "round it before sending")
    return scaled or abs(scaled)


def _text(data_type: DataType) -> Decode:
    limit = data_type.length

    def decode(value: Any) -> str:
        if not isinstance(value, str):
            raise wrong("text", value, "send a JSON string")
        if limit is not None and len(value) > limit:
            message = f"the text has {len(value)} characters, {data_type.base_sql} holds {limit}"
            raise ValueFault(FaultCode.TOO_LONG, message, f"send at most {limit} characters")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueFault(
                FaultCode.NOT_UNICODE, "the text holds half of a surrogate pair", "send valid Unicode"
            ) from None
        return value

    return decode


def _binary(data_type: DataType) -> Decode:
    limit = data_type.length

    def decode(value: Any) -> bytes:
        if isinstance(value, str):
            try:
                value = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                raise ValueFault(
                    FaultCode.NOT_BASE64, f"{shown(value)} is not base64", "encode the bytes as base64"
                ) from None
        if not isinstance(value, bytes):
            raise wrong("binary", value, "send the bytes as base64 text")
        if limit is not None and len(value) > limit:
            message = f"the value has {len(value)} bytes, {data_type.base_sql} holds {limit}"
            raise ValueFault(FaultCode.TOO_LONG, message, f"send at most {limit} bytes")
        return value

    return decode


def _date(_: DataType) -> Decode:
    def decode(value: Any) -> date:
        if isinstance(value, str) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
            try:
                return date.fromisoformat(value)
            except ValueError:
                pass
        raise ValueFault(FaultCode.BAD_DATE, f"{shown(value)} is not a DATE", "send YYYY-MM-DD")

    return decode


_CLOCK = r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"


def _microseconds(fraction: str | None, precision: int, value: object) -> int:
    digits = (fraction or "").rstrip("0")
    if len(digits) > precision:
        message = f"{shown(value)} has {len(digits)} digits of a second, the column holds {precision}"
        raise ValueFault(FaultCode.TOO_MANY_DIGITS, message, f"send at most {precision} digits after the point")
    return int(digits.ljust(6, "0")) if digits else 0


def _time(data_type: DataType) -> Decode:
    precision = min(data_type.precision or 0, 3)

    def decode(value: Any) -> int:
        match = re.fullmatch(_CLOCK, value) if isinstance(value, str) else None
        try:
            if match:
                moment = time(int(match[1]), int(match[2]), int(match[3]))
                micros = _microseconds(match[4], precision, value)
                return ((moment.hour * 60 + moment.minute) * 60 + moment.second) * 1000 + micros // 1000
        except ValueFault:
            raise
        except ValueError:
            pass
        raise ValueFault(FaultCode.BAD_TIME, f"{shown(value)} is not a TIME", "send HH:MM:SS")

    return decode


def _timestamp(data_type: DataType) -> Decode:
    local = data_type.kind == "TIMESTAMP_LTZ"
    pattern = re.compile(rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})[T ]{_CLOCK}(Z|[+-][0-9]{{2}}:[0-9]{{2}})?")
    form = "2024-01-31T10:00:00Z" if local else "2024-01-31T10:00:00"

    def decode(value: Any) -> datetime:
        match = pattern.fullmatch(value) if isinstance(value, str) else None
        if match is None or bool(match[6]) is not local:
            zone = "with its offset" if local else "without an offset"
            raise ValueFault(
                FaultCode.BAD_TIMESTAMP, f"{shown(value)} is not a {data_type.base_sql}", f"send {form}, {zone}"
            )
        micros = _microseconds(match[5], data_type.precision or 0, value)
        try:
            moment = datetime.fromisoformat(f"{match[1]}T{match[2]}:{match[3]}:{match[4]}{match[6] or ''}")
            return (moment.astimezone(UTC) if local else moment).replace(microsecond=micros)
        except (ValueError, OverflowError):
            raise ValueFault(
                FaultCode.BAD_TIMESTAMP, f"{shown(value)} is not a date and time", f"send {form}"
            ) from None

    return decode


def _plain(_: DataType) -> Encode:
    return lambda value: value


def _encode_float(data_type: DataType) -> Encode:
    single = data_type.kind == "FLOAT"

    def encode(value: float) -> float | str:
        if math.isfinite(value):
            return shortest_float32(value) if single else value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"

    return encode


_SMALLEST_NORMAL = 2.0**-126


def shortest_float32(value: float) -> float:
    """The number of the fewest digits that FLOAT's 32 bits hold as ``value``: 0.1 for 0.10000000149011612 (A.9)."""
    # Any 6 digits come back from 32 bits as they were, but for the smallest numbers; 9 tell any two numbers apart.
    for digits in range(6 if abs(value) >= _SMALLEST_NORMAL else 1, 9):
        short = float(f"{value:.{digits}g}")
        if as_float32(short) == value:
            return short
    return float(f"{value:.9g}")


def _encode_time(_: DataType) -> Encode:
    def encode(value: int) -> str:
        seconds, millis = divmod(value, 1000)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return f"{clock}.{millis:03}".rstrip("0") if millis else clock

    return encode


def _encode_timestamp(data_type: DataType) -> Encode:
    suffix = "Z" if data_type.kind == "TIMESTAMP_LTZ" else ""

    def encode(value: datetime) -> str:
        text = value.replace(tzinfo=None).isoformat()
        return (text.rstrip("0") if value.microsecond else text) + suffix

    return encode


def _text_of_boolean(_: DataType, text: str) -> Any:
    return {"true": True, "false": False}.get(text.lower(), text)


SCALAR_FORMS: Mapping[str, ValueForm] = {
    "BOOLEAN": ValueForm(_boolean, _plain, _text_of_boolean),
    **{kind: ValueForm(_integer, _plain) for kind in INTEGER_BITS},
    **{kind: ValueForm(_floating, _encode_float) for kind in ("FLOAT", "DOUBLE")},
    "DECIMAL": ValueForm(_decimal, lambda _: lambda value: f"{value:f}"),
    **{kind: ValueForm(_text, _plain) for kind in ("CHAR", "VARCHAR", "STRING")},
    **{
        kind: ValueForm(_binary, lambda _: lambda value: base64.b64encode(value).decode())
        for kind in ("BINARY", "VARBINARY", "BYTES")
    },
    "DATE": ValueForm(_date, lambda _: lambda value: value.isoformat()),
    "TIME": ValueForm(_time, _encode_time),
    **{kind: ValueForm(_timestamp, _encode_timestamp) for kind in ("TIMESTAMP", "TIMESTAMP_LTZ")},
}
