"""The exact arithmetic of numbers, and the ranges of their types."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any

from app.core.types.kinds import DataType

EXACT = Context(prec=100)  # Python's default of 28 digits would round sums of DECIMAL(38, s)


INTEGER_BITS: Mapping[str, int] = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


def fits(data_type: DataType, value: Any) -> bool:
    """Whether a number is in the range of a numeric type; FLOAT and DOUBLE take any (§5.1)."""
    if data_type.kind in INTEGER_BITS:
        half = 1 << INTEGER_BITS[data_type.kind] - 1
        return -half <= int(value) < half
    if data_type.kind == "DECIMAL":
        # abs() and unary minus would round to Python's default of 28 digits; comparisons are exact.
        limit = Decimal(1).scaleb((data_type.precision or 0) - (data_type.scale or 0))
        return -limit < Decimal(value) < limit
    return True


def as_float32(value: float) -> float:
    """``value`` rounded to FLOAT's 32 bits; out of range becomes infinite."""
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return rounded


def range_of(data_type: DataType) -> tuple[Decimal, Decimal]:
    """The smallest and largest value of an integer or DECIMAL type."""
    if data_type.kind == "DECIMAL":
        scale = data_type.scale or 0
        high = EXACT.subtract(EXACT.scaleb(Decimal(1), (data_type.precision or 0) - scale), Decimal(1).scaleb(-scale))
        return EXACT.minus(high), high
    half = 1 << INTEGER_BITS[data_type.kind] - 1
    return Decimal(-half), Decimal(half - 1)
