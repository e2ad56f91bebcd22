"""The ``product`` function: multiplies what is added and divides by what is retracted (merge-semantics §5.1)."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from typing import Any

from app.core.rules.step_function import InexactFold, OneByOne, StepFunction
from app.core.types.datatype import DataType
from app.core.types.kinds import Family, Kind
from app.core.types.numbers import EXACT, as_float32


def product(column: DataType) -> StepFunction:
    """The product of a column of the given numeric type.

    Whole numbers and decimals are multiplied in 38 digits and checked against the column's type when the row is read.
    """
    if column.family is Family.FLOATING:
        return _floating(column)
    return _decimal(column) if column.family is Family.DECIMAL else _integer()


def rounding(column: DataType) -> tuple[Kind | Family, int]:
    """How a step rounds in a column of the type: products of types that round alike go on where one stopped."""
    return column.family if column.family is Family.INTEGER else column.kind, (column.scale or 0)


def _division_by_zero(value: Any) -> str | None:
    return "a retract of 0 would divide the product by zero" if value == 0 else None


def _integer() -> StepFunction:
    def retract(accumulated: int, value: int) -> int:
        quotient = abs(accumulated) // abs(value)
        return quotient if (accumulated < 0) == (value < 0) else -quotient

    return StepFunction(
        lambda: OneByOne(lambda a, v: v if a is None else int(a) * v, lambda a, v: retract(int(a), v)),
        lambda a, v: f"IF({a} IS NULL, {v}, {a} * CAST({v} AS DECIMAL(20,0)))",
        # The remainder makes the division exact, so that Spark's rounding of quotients never shows.
        lambda a, v: f"(({a} - {a} % CAST({v} AS DECIMAL(20,0))) / CAST({v} AS DECIMAL(20,0)))",
        associative=False,
        retract_fault=_division_by_zero,
        wide=DataType(Kind.DECIMAL, precision=38, scale=0),
    )


def _decimal(column: DataType) -> StepFunction:
    scale = column.scale or 0
    unit = Decimal(1).scaleb(-scale)
    shift = f"CAST('1E{2 * scale}' AS DECIMAL(38,0))"

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

    def retract_sql(a: str, v: str) -> str:
        # What is left of the divisor without its factors 2 and 5 divides the dividend, or the quotient never ends.
        odd = _stripped_sql(
            _stripped_sql(f"abs(CAST({v} * CAST('1E{scale}' AS DECIMAL(38,0)) AS DECIMAL(38,0)))", 2, 127), 5, 55
        )
        ends = f"CAST({a} * CAST('1E{scale}' AS DECIMAL(38,0)) AS DECIMAL(38,0)) % {odd} = 0"
        inexact = literal_inexact(column)
        return f"CASE WHEN {a} = {inexact} THEN {a} WHEN NOT ({ends}) THEN {inexact} ELSE {quotient_sql(a, v)} END"

    def quotient_sql(a: str, v: str) -> str:
        dividend = f"CAST({a} * {shift} AS DECIMAL(38,0))"
        divisor = f"CAST({v} * CAST('1E{scale}' AS DECIMAL(38,0)) AS DECIMAL(38,0))"
        rest = f"({dividend} % {divisor})"
        carry = f"IF(2 * abs({rest}) >= abs({divisor}), IF(({a} < 0) = ({v} < 0), 1, -1), 0)"
        whole = f"CAST((({dividend} - {rest}) / {divisor}) AS DECIMAL(38,0))"
        return f"(({whole} + {carry}) * CAST('1E-{scale}' AS DECIMAL(38,{scale})))"

    return StepFunction(
        lambda: OneByOne(lambda a, v: v if a is None else rounded(EXACT.multiply(a, v)), retract),
        lambda a, v: f"CASE WHEN {a} IS NULL THEN {v} WHEN {a} = {literal_inexact(column)} THEN {a} ELSE {a} * {v} END",
        retract_sql,
        associative=False,
        retract_fault=_division_by_zero,
        wide=DataType(Kind.DECIMAL, precision=38, scale=scale),
        inexact=literal_inexact(column),
    )


def _terminates(dividend: Decimal, divisor: Decimal) -> bool:
    """Whether the quotient has finitely many digits (§5.1: otherwise it is an error)."""
    a, b = dividend.as_integer_ratio(), divisor.as_integer_ratio()
    denominator = Fraction(a[0] * b[1], a[1] * b[0]).denominator
    for factor in (2, 5):
        while denominator % factor == 0:
            denominator //= factor
    return denominator == 1


def _stripped_sql(number: str, factor: int, times: int) -> str:
    return (
        f"aggregate(sequence(1, {times}), {number}, "
        f"(d, i) -> IF(d % {factor} = 0, CAST(d / {factor} AS DECIMAL(38,0)), d))"
    )


def literal_inexact(column: DataType) -> str:
    """The value that stands, in Spark, for a quotient without end: no product that fits its column reaches it."""
    scale = column.scale or 0
    digits = "9" * (38 - scale) + ("." + "9" * scale if scale else "")
    return f"CAST('{digits}' AS DECIMAL(38,{scale}))"


def _floating(column: DataType) -> StepFunction:
    def fitted(value: float) -> float:
        return as_float32(value) if column.kind is Kind.FLOAT else value

    def divided(accumulated: float, value: float) -> float:
        if value != 0:
            return accumulated / value
        if accumulated == 0 or math.isnan(accumulated):
            return math.nan
        return math.copysign(math.inf, accumulated) * math.copysign(1.0, value)

    def retract_sql(a: str, v: str) -> str:
        infinite = f"signum({a}) * DOUBLE('Infinity') * IF(CAST({v} AS STRING) = '-0.0', -1, 1)"
        by_zero = f"IF({a} = 0 OR isnan({a}), DOUBLE('NaN'), {infinite})"
        return f"IF({v} = 0, {by_zero}, try_divide(CAST({a} AS DOUBLE), {v}))"

    return StepFunction(
        lambda: OneByOne(lambda a, v: v if a is None else fitted(a * v), lambda a, v: fitted(divided(a, v))),
        lambda a, v: f"IF({a} IS NULL, {v}, CAST({a} AS DOUBLE) * {v})",
        retract_sql,
        associative=False,
    )
