"""The types of numbers, and the exact arithmetic of their values."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from decimal import Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from app.core.errors import FaultCode
from app.core.types.entry import Bounds, Entry, Widening, always, int_bytes, long_bytes
from app.core.types.kinds import Family, Kind
from app.core.types.values import Decode, Encode, ValueFault, shown, wrong

if TYPE_CHECKING:
    from app.core.types.datatype import DataType

EXACT = Context(prec=100)  # Python's default of 28 digits would round sums of DECIMAL(38, s)


def fits(data_type: DataType, value: Any) -> bool:
    """Return whether a number is in the range of a numeric type; FLOAT and DOUBLE take any."""
    if data_type.family is Family.INTEGER:
        half = 1 << data_type.entry.bits - 1
        return -half <= int(value) < half
    if data_type.family is Family.DECIMAL:
        # abs() and unary minus would round to Python's default of 28 digits; comparisons are exact.
        limit = Decimal(1).scaleb((data_type.precision or 0) - (data_type.scale or 0))
        return -limit < Decimal(value) < limit
    return True


def as_float32(value: float) -> float:
    """Return ``value`` rounded to FLOAT's 32 bits; out of range becomes infinite."""
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return rounded


def range_of(data_type: DataType) -> tuple[Decimal, Decimal]:
    """Return the smallest and largest value of an integer or DECIMAL type."""
    if data_type.family is Family.DECIMAL:
        scale = data_type.scale or 0
        high = EXACT.subtract(EXACT.scaleb(Decimal(1), (data_type.precision or 0) - scale), Decimal(1).scaleb(-scale))
        return EXACT.minus(high), high
    half = 1 << data_type.entry.bits - 1
    return Decimal(-half), Decimal(half - 1)


def float_rank(value: Any) -> Any:
    """Return a number that sorts as IEEE 754's total order: -0.0 before 0.0, NaN last. What stands in for a
    value says by itself what it is (``ranked``).
    """
    if not isinstance(value, float) and hasattr(value, "ranked"):
        return value.ranked
    if value != value:
        return 2**64
    bits: int = struct.unpack(">q", struct.pack(">d", value))[0]
    return bits if bits >= 0 else -(bits & 0x7FFF_FFFF_FFFF_FFFF) - 1


_NUMERAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
# Longest number in text: no type has values with more digits, and reading thousands takes long.
MOST_DIGITS = 1000


def _number(value: Any) -> Any:
    """Return a number that was sent as text, exactly; any other value unchanged."""
    if not isinstance(value, str) or len(value) > MOST_DIGITS or not _NUMERAL.fullmatch(value):
        return value
    return Decimal(value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _decode_integer(data_type: DataType) -> Decode:
    half = 1 << data_type.entry.bits - 1
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
    """Return a number without fraction, however it is written: 5, 5.0, 1e3, or one of these as text."""
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


# How JSON writes what it has no numbers for.
_NOT_FINITE: Mapping[str, float] = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}


def _decode_floating(data_type: DataType) -> Decode:
    single = data_type.kind is Kind.FLOAT

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


def _decode_decimal(data_type: DataType) -> Decode:
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


def _encode_floating(data_type: DataType) -> Encode:
    single = data_type.kind is Kind.FLOAT

    def encode(value: float) -> float | str:
        if math.isfinite(value):
            return shortest_float32(value) if single else value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"

    return encode


_SMALLEST_NORMAL = 2.0**-126


def shortest_float32(value: float) -> float:
    """Return the number of the fewest digits that FLOAT's 32 bits hold as ``value``: 0.1 for 0.10000000149011612."""
    # Any 6 digits come back from 32 bits as they were, but for the smallest numbers. 9 digits are
    # different for any two numbers.
    for digits in range(6 if abs(value) >= _SMALLEST_NORMAL else 1, 9):
        short = float(f"{value:.{digits}g}")
        if as_float32(short) == value:
            return short
    return float(f"{value:.9g}")


def _encode_decimal(_: DataType) -> Encode:
    return lambda value: f"{value:f}"


def _decimal_bytes(value: Decimal, data_type: DataType) -> bytes:
    """Return up to 18 digits Spark hashes the unscaled number as a long, beyond that its shortest big-endian bytes."""
    sign, digits, _ = value.as_tuple()
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    if (data_type.precision or 0) <= 18:
        return long_bytes(unscaled)
    # As Java's BigInteger.bitLength(), which is one less than Python's for the powers of two below zero.
    bits = unscaled.bit_length() if unscaled >= 0 else (-unscaled - 1).bit_length()
    return unscaled.to_bytes(bits // 8 + 1, "big", signed=True)


def _decimal_of(value: Any, data_type: DataType) -> Decimal:
    return EXACT.quantize(Decimal(value), Decimal(1).scaleb(-(data_type.scale or 0)))


def _integer_digits(data_type: DataType) -> int:
    return (data_type.precision or 0) - (data_type.scale or 0)


def _room_for(digits: int) -> Widening:
    return lambda _, new: _integer_digits(new) >= digits


def _more_digits(old: DataType, new: DataType) -> bool:
    return (new.scale or 0) >= (old.scale or 0) and _integer_digits(new) >= _integer_digits(old)


def _integer(kind: Kind, bits: int, widens: Mapping[Kind, Widening]) -> Entry:
    return Entry(
        Family.INTEGER,
        spark=lambda _: kind.value,
        decode=_decode_integer,
        bits=bits,
        ordered=True,
        padded=True,
        orders_groups=True,
        hashed=lambda value, _: long_bytes(value) if bits > 32 else int_bytes(value),
        widens=widens,
    )


def _floating(kind: Kind, packed: struct.Struct, widens: Mapping[Kind, Widening]) -> Entry:
    return Entry(
        Family.FLOATING,
        spark=lambda _: kind.value,
        decode=_decode_floating,
        encode=_encode_floating,
        ordered=True,
        rank=float_rank,
        padded=True,
        orders_groups=True,
        hashed=lambda value, _: packed.pack(math.nan if value != value else value + 0.0),
        widens=widens,
        widened=lambda value, _: float(value),
    )


# The smaller integers are 32 bits wide in Parquet: Spark wants room for ten digits, also where their range is less.
_FROM_INT: Mapping[Kind, Widening] = {Kind.BIGINT: always, Kind.DOUBLE: always, Kind.DECIMAL: _room_for(10)}

NUMBERS: Mapping[Kind, Entry] = {
    Kind.TINYINT: _integer(Kind.TINYINT, 8, {Kind.SMALLINT: always, Kind.INT: always, **_FROM_INT}),
    Kind.SMALLINT: _integer(Kind.SMALLINT, 16, {Kind.INT: always, **_FROM_INT}),
    Kind.INT: _integer(Kind.INT, 32, _FROM_INT),
    Kind.BIGINT: _integer(Kind.BIGINT, 64, {Kind.DECIMAL: _room_for(20)}),
    Kind.FLOAT: _floating(Kind.FLOAT, struct.Struct("<f"), {Kind.DOUBLE: always}),
    Kind.DOUBLE: _floating(Kind.DOUBLE, struct.Struct("<d"), {}),
    Kind.DECIMAL: Entry(
        Family.DECIMAL,
        spark=lambda data_type: f"DECIMAL({data_type.precision},{data_type.scale})",
        decode=_decode_decimal,
        encode=_encode_decimal,
        parameters={"precision": Bounds(1, 38, 10), "scale": Bounds(0, None, 0)},
        ordered=True,
        padded=True,
        orders_groups=True,
        hashed=_decimal_bytes,
        widens={Kind.DECIMAL: _more_digits},
        widened=_decimal_of,
    ),
}
