"""DATE, TIME and the timestamps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any, Final

from app.core.errors import FaultCode
from app.core.types.entry import Bounds, Entry, int_bytes, long_bytes
from app.core.types.kinds import Family, Kind
from app.core.types.values import Decode, Encode, ValueFault, shown

if TYPE_CHECKING:
    from app.core.types.datatype import DataType

# Fractional digits of a second in a TIME; tables of older releases may declare more.
TIME_DIGITS: Final = 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()


def _decode_date(_: DataType) -> Decode:
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


def _decode_time(data_type: DataType) -> Decode:
    precision = min(data_type.precision or 0, TIME_DIGITS)

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


def _decode_timestamp(data_type: DataType) -> Decode:
    local = data_type.kind is Kind.TIMESTAMP_LTZ
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


def _encode_time(_: DataType) -> Encode:
    def encode(value: int) -> str:
        seconds, millis = divmod(value, 1000)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return f"{clock}.{millis:03}".rstrip("0") if millis else clock

    return encode


def _encode_timestamp(data_type: DataType) -> Encode:
    suffix = "Z" if data_type.kind is Kind.TIMESTAMP_LTZ else ""

    def encode(value: datetime) -> str:
        text = value.replace(tzinfo=None).isoformat()
        return (text.rstrip("0") if value.microsecond else text) + suffix

    return encode


def _encode_date(_: DataType) -> Encode:
    return lambda value: value.isoformat()


def _timestamp_bytes(value: datetime, _: DataType) -> bytes:
    delta = (value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH
    return long_bytes((delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds)


def _more_precise(old: DataType, new: DataType) -> bool:
    return (new.precision or 0) >= (old.precision or 0)


def _timestamp(kind: Kind, sql: str, *, spark: str) -> Entry:
    return Entry(
        Family.TIMESTAMP,
        spark=lambda _: spark,
        decode=_decode_timestamp,
        encode=_encode_timestamp,
        sql=lambda data_type: sql.format(data_type.precision),
        parameters={"precision": Bounds(0, 9, 6, held=6)},
        ordered=True,
        padded=True,
        orders_groups=True,
        hashed=_timestamp_bytes,
        widens={kind: _more_precise},
    )


TIMES: Mapping[Kind, Entry] = {
    Kind.DATE: Entry(
        Family.DATE,
        spark=lambda _: "DATE",
        decode=_decode_date,
        encode=_encode_date,
        ordered=True,
        padded=True,
        orders_groups=True,
        hashed=lambda value, _: int_bytes(value.toordinal() - _EPOCH_DAY),
    ),
    Kind.TIME: Entry(
        Family.TIME,
        spark=lambda _: "INT",  # milliseconds of the day, as Paimon itself keeps TIME: every Spark version reads it
        decode=_decode_time,
        encode=_encode_time,
        parameters={"precision": Bounds(0, 9, 0)},
        ordered=True,
        orders_groups=True,
        hashed=lambda value, _: int_bytes(value),
        widens={Kind.TIME: _more_precise},
    ),
    Kind.TIMESTAMP: _timestamp(Kind.TIMESTAMP, "TIMESTAMP({0})", spark="TIMESTAMP_NTZ"),
    Kind.TIMESTAMP_LTZ: _timestamp(
        Kind.TIMESTAMP_LTZ,
        "TIMESTAMP({0}) WITH LOCAL TIME ZONE",
        spark="TIMESTAMP",
    ),
}
