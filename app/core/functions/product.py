"""The ``product`` function: multiplies by added values, and divides by retracted ones."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from typing import Any

from app.core.rules.step_function import InexactFold, OneByOne, StepFunction
from app.core.types.datatype import DataType
from app.core.types.kinds import Family, Kind
from app.core.types.numbers import EXACT, as_float32, range_of


def product(column: DataType) -> StepFunction:
    """Return the product of a column of the given numeric type.

    Whole numbers and decimals are multiplied in 38 digits and checked against the column's type when the row is read.
    """
    if column.family is Family.FLOATING:
        return _floating(column)
    return _decimal(column) if column.family is Family.DECIMAL else _integer()


def rounding(column: DataType) -> tuple[Kind | Family, int]:
    """Return how a step rounds in a column of the type: products of types that round alike go on where one stopped."""
    return column.family if column.family is Family.INTEGER else column.kind, (column.scale or 0)


def _division_by_zero(value: Any) -> str | None:
    return "a retract of 0 would divide the product by zero" if value == 0 else None


def _integer() -> StepFunction:
    def retract(accumulated: int, value: int) -> int:
        quotient = abs(accumulated) // abs(value)
        return quotient if (accumulated < 0) == (value < 0) else -quotient

    return StepFunction(
        lambda: OneByOne(lambda a, v: v if a is None else int(a) * v, lambda a, v: retract(int(a), v)),
        associative=False,
        retract_fault=_division_by_zero,
        wide=DataType(Kind.DECIMAL, precision=38, scale=0),
    )


def _decimal(column: DataType) -> StepFunction:
    scale = column.scale or 0
    unit = Decimal(1).scaleb(-scale)
    wide = DataType(Kind.DECIMAL, precision=38, scale=scale)

    def rounded(value: Decimal) -> Decimal:
        return value.quantize(unit, rounding=ROUND_HALF_UP, context=EXACT)

    def retract(accumulated: Decimal, value: Decimal) -> Decimal:
        if not _terminates(accumulated, value):
            raise InexactFold
        divisor = EXACT.abs(EXACT.scaleb(value, scale))
        whole, rest = EXACT.divmod(EXACT.abs(EXACT.scaleb(accumulated, 2 * scale)), divisor)
        whole = EXACT.add(whole, 1 if EXACT.multiply(2, rest) >= divisor else 0)
        quotient = EXACT.scaleb(whole, -scale)
        return rounded(quotient if (accumulated < 0) == (value < 0) else EXACT.minus(quotient))

    return StepFunction(
        lambda: OneByOne(lambda a, v: v if a is None else rounded(EXACT.multiply(a, v)), retract),
        associative=False,
        retract_fault=_division_by_zero,
        wide=wide,
        endless=range_of(wide)[1],
    )


def _terminates(dividend: Decimal, divisor: Decimal) -> bool:
    """Return whether the quotient has finitely many digits (otherwise it is an error)."""
    a, b = dividend.as_integer_ratio(), divisor.as_integer_ratio()
    denominator = Fraction(a[0] * b[1], a[1] * b[0]).denominator
    for factor in (2, 5):
        while denominator % factor == 0:
            denominator //= factor
    return denominator == 1


def _floating(column: DataType) -> StepFunction:
    def fitted(value: float) -> float:
        return as_float32(value) if column.kind is Kind.FLOAT else value

    def divided(accumulated: float, value: float) -> float:
        if value != 0:
            return accumulated / value
        if accumulated == 0 or math.isnan(accumulated):
            return math.nan
        return math.copysign(math.inf, accumulated) * math.copysign(1.0, value)

    return StepFunction(
        lambda: OneByOne(lambda a, v: v if a is None else fitted(a * v), lambda a, v: fitted(divided(a, v))),
        associative=False,
    )
