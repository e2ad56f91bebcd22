"""Scalar values of each data type, read strictly from JSON or text, written as JSON (design §6)."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any

from app.core.accumulators import EXACT, INTEGER_BITS, as_float32
from app.core.types import DataType


class ValueFault(ValueError):
    """A value that its column cannot take; ``path`` leads to it inside a nested value (JSON pointer segments)."""

    def __init__(self, code: str, message: str, fix: str, path: tuple[str, ...] = ()) -> None:
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
    return ValueFault("wrong_type", f"{shown(value)} is not {expected}", fix)


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


def _integer(data_type: DataType) -> Decode:
    half = 1 << INTEGER_BITS[data_type.kind] - 1
    low, high = -half, half - 1
    accepts_text = data_type.kind == "BIGINT"

    def decode(value: Any) -> int:
        if accepts_text and isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,30}", value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong(f"a whole number ({data_type.kind})", value, "send a number without fraction")
        if not low <= value <= high:
            message = f"{shown(value)} is out of range for {data_type.kind}"
            raise ValueFault("out_of_range", message, f"send {low} to {high}")
        return value

    return decode


def _floating(data_type: DataType) -> Decode:
    single = data_type.kind == "FLOAT"

    def decode(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            raise wrong(f"a number ({data_type.kind})", value, "send a finite JSON number")
        try:
            number = float(value)
        except OverflowError:
            number = float("inf")
        number = as_float32(number) if single else number
        if number in (float("inf"), float("-inf")) or number != number:
            raise ValueFault(
                "out_of_range", f"{shown(value)} is out of range for {data_type.kind}", "send a finite number"
            )
        return number

    return decode


_NUMERAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)


def _decimal(data_type: DataType) -> Decode:
    precision, scale = data_type.precision or 0, data_type.scale or 0
    unit = Decimal(1).scaleb(-scale)

    def decode(value: Any) -> Decimal:
        if isinstance(value, str) and _NUMERAL.fullmatch(value):
            value = Decimal(value)
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            raise wrong(f"a {data_type.base_sql}", value, 'send a number or its decimal text, like "12.50"')
        number = Decimal(str(value)) if isinstance(value, float) else Decimal(value)
        if not number.is_finite() or (number.adjusted() >= precision - scale and number != 0):
            message = f"{shown(value)} is out of range for {data_type.base_sql}"
            raise ValueFault("out_of_range", message, f"at most {precision - scale} digits before the point")
        return _scaled(number, unit, data_type)

    return decode


def _scaled(number: Decimal, unit: Decimal, data_type: DataType) -> Decimal:
    try:
        scaled = number.quantize(unit, context=EXACT)
    except InvalidOperation:
        scaled = Decimal("NaN")
    if scaled != number:
        message = f"{shown(number)} has more than {data_type.scale} digits after the point ({data_type.base_sql})"
        raise ValueFault("too_many_digits", message, "round it before sending")
    return scaled or abs(scaled)


def _text(data_type: DataType) -> Decode:
    limit = data_type.length

    def decode(value: Any) -> str:
        if not isinstance(value, str):
            raise wrong("text", value, "send a JSON string")
        if limit is not None and len(value) > limit:
            message = f"the text has {len(value)} characters, {data_type.base_sql} holds {limit}"
            raise ValueFault("too_long", message, f"send at most {limit} characters")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueFault("not_unicode", "the text holds half of a surrogate pair", "send valid Unicode") from None
        return value

    return decode


def _binary(data_type: DataType) -> Decode:
    limit = data_type.length

    def decode(value: Any) -> bytes:
        if isinstance(value, str):
            try:
                value = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                raise ValueFault("not_base64", f"{shown(value)} is not base64", "encode the bytes as base64") from None
        if not isinstance(value, bytes):
            raise wrong("binary", value, "send the bytes as base64 text")
        if limit is not None and len(value) > limit:
            message = f"the value has {len(value)} bytes, {data_type.base_sql} holds {limit}"
            raise ValueFault("too_long", message, f"send at most {limit} bytes")
        return value

    return decode


def _date(_: DataType) -> Decode:
    def decode(value: Any) -> date:
        if isinstance(value, str) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
            try:
                return date.fromisoformat(value)
            except ValueError:
                pass
        raise ValueFault("bad_date", f"{shown(value)} is not a DATE", "send YYYY-MM-DD")

    return decode


_CLOCK = r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"


def _microseconds(fraction: str | None, precision: int, value: object) -> int:
    digits = (fraction or "").rstrip("0")
    if len(digits) > precision:
        message = f"{shown(value)} has {len(digits)} digits of a second, the column holds {precision}"
        raise ValueFault("too_many_digits", message, f"send at most {precision} digits after the point")
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
        raise ValueFault("bad_time", f"{shown(value)} is not a TIME", "send HH:MM:SS")

    return decode


def _timestamp(data_type: DataType) -> Decode:
    local = data_type.kind == "TIMESTAMP_LTZ"
    pattern = re.compile(rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})[T ]{_CLOCK}(Z|[+-][0-9]{{2}}:[0-9]{{2}})?")
    form = "2024-01-31T10:00:00Z" if local else "2024-01-31T10:00:00"

    def decode(value: Any) -> datetime:
        match = pattern.fullmatch(value) if isinstance(value, str) else None
        if match is None or bool(match[6]) is not local:
            zone = "with its offset" if local else "without an offset"
            raise ValueFault("bad_timestamp", f"{shown(value)} is not a {data_type.base_sql}", f"send {form}, {zone}")
        micros = _microseconds(match[5], data_type.precision or 0, value)
        try:
            moment = datetime.fromisoformat(f"{match[1]}T{match[2]}:{match[3]}:{match[4]}{match[6] or ''}")
            return (moment.astimezone(UTC) if local else moment).replace(microsecond=micros)
        except (ValueError, OverflowError):
            raise ValueFault("bad_timestamp", f"{shown(value)} is not a date and time", f"send {form}") from None

    return decode


def _plain(_: DataType) -> Encode:
    return lambda value: value


def _encode_float(_: DataType) -> Encode:
    names = {float("inf"): "Infinity", float("-inf"): "-Infinity"}
    return lambda value: "NaN" if value != value else names.get(value, value)


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


def _text_of_number(_: DataType, text: str) -> Any:
    if re.fullmatch(r"[+-]?[0-9]{1,40}", text):
        return int(text)
    return Decimal(text) if _NUMERAL.fullmatch(text) else text


SCALAR_FORMS: Mapping[str, ValueForm] = {
    "BOOLEAN": ValueForm(_boolean, _plain, _text_of_boolean),
    **{kind: ValueForm(_integer, _plain, _text_of_number) for kind in INTEGER_BITS},
    **{kind: ValueForm(_floating, _encode_float, _text_of_number) for kind in ("FLOAT", "DOUBLE")},
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
