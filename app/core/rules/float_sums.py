"""Sums of floating-point numbers, added without error and rounded once (docs/semantics.md, Aggregate functions).

A sum is a number and a rest. The number is the exact sum, rounded to the column's type. The rest is what rounding took
away: numbers of DOUBLE, the largest first, that add up with the number to the exact sum. Each of them is what is still
missing, rounded to DOUBLE, so one exact sum is written in one way only.

Where the number is NaN or infinite, the rest begins with three counts: how often Infinity, -Infinity and NaN were added
more than they were retracted. The finite part of the sum follows. Without a rest, the number itself counts once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from sys import float_info
from typing import Any, NamedTuple

_FLOAT_DIGITS, _FLOAT_LOWEST, _FLOAT_END = 24, -149, 2.0**128  # bits of precision, exponents of the ends
_COUNTS = 3  # of Infinity, -Infinity and NaN


class FloatSum(NamedTuple):
    """A sum: its number, and the rest where there is one."""

    number: float
    rest: Sequence[float] | None = None


def is_finite(value: Any) -> bool:
    """Return whether a number is neither infinite nor NaN. A placeholder answers by itself (``finite``)."""
    if not isinstance(value, float) and hasattr(value, "finite"):
        return bool(value.finite)
    return math.isfinite(value)


def retracted(value: float) -> FloatSum:
    """Return the sum of which ``value`` was taken away and nothing else. Zero has no sign then."""
    if is_finite(value):
        return FloatSum(0.0 - value)
    return FloatSum(-value, [float(-count) for count in _counts(FloatSum(value))])


def whole_number(value: int, *, single: bool) -> FloatSum:
    """Return a whole number of any size as a sum; ``single`` as in ``added``."""
    return _of_fraction([0] * _COUNTS, Fraction(value), single)


def added(sums: Sequence[FloatSum], *, single: bool) -> FloatSum:
    """Return the sum of ``sums``, of which there is one at least; ``single``: rounded to FLOAT, else to DOUBLE.

    Placeholders add up by themselves (``summed``).
    """
    first: Any = sums[0].number
    if not isinstance(first, float) and hasattr(first, "summed"):
        total_of_placeholders: FloatSum = first.summed(sums, single=single)
        return total_of_placeholders
    parts = [number for number, _ in sums]
    for _, rest in sums:
        if rest:
            parts += rest
    try:
        total = math.fsum(parts)
    except (OverflowError, ValueError):  # what was added so far is no DOUBLE, or both infinities are there
        total = math.nan
    if not math.isfinite(total):
        counts = [sum(counts_of_kind) for counts_of_kind in zip(*map(_counts, sums), strict=True)]
        return _of_fraction(counts, sum(map(_finite_part, sums), Fraction()), single)
    if total == 0:
        return FloatSum(-0.0 if all(math.copysign(1, part) < 0 for part in parts) else 0.0)
    return _of_parts(parts, total, single)


def _of_parts(parts: list[float], total: float, single: bool) -> FloatSum:
    """Return the sum of finite ``parts``, which is ``total`` when it is rounded to DOUBLE."""
    missing = math.fsum([*parts, -total])
    number = _rounded_to_float(total, missing) if single else total
    if number == total and not missing:
        return FloatSum(number)
    if math.isinf(number):
        return FloatSum(number, [0.0] * _COUNTS + _numbers(parts))
    return FloatSum(number, _numbers([*parts, -number]))


def _numbers(parts: Sequence[float]) -> list[float]:
    """Return the sum of ``parts`` as numbers of DOUBLE, the largest first."""
    left, numbers = [*parts], []
    while number := math.fsum(left):
        numbers.append(number)
        left.append(-number)
    return numbers


def _rounded_to_float(number: float, missing: float) -> float:
    """Return a sum rounded to FLOAT: ``number`` is the sum rounded to DOUBLE, ``missing`` what that took away."""
    if abs(number) > _FLOAT_END:
        return math.copysign(math.inf, number)
    unit = max(math.frexp(number)[1] - _FLOAT_DIGITS, _FLOAT_LOWEST)
    units = math.ldexp(number, -unit)
    below = math.floor(units)
    half = units - below == 0.5
    rounded = math.ldexp(below + (missing > 0) if half and missing else round(units), unit)
    return rounded if abs(rounded) < _FLOAT_END else math.copysign(math.inf, number)


def _counts(float_sum: FloatSum) -> list[int]:
    """Return how often Infinity, -Infinity and NaN count in a sum."""
    number, rest = float_sum
    if math.isfinite(number):
        return [0] * _COUNTS
    if rest:
        return [int(count) for count in rest[:_COUNTS]]
    return [int(number == math.inf), int(number == -math.inf), int(math.isnan(number))]


def _finite_part(float_sum: FloatSum) -> Fraction:
    """Return the exact sum of the finite values in a sum."""
    number, rest = float_sum
    parts = [number, *(rest or ())] if math.isfinite(number) else (rest or ())[_COUNTS:]
    return sum(map(Fraction, parts), Fraction())


def _of_fraction(counts: list[int], exact: Fraction, single: bool) -> FloatSum:
    """Return the sum of ``exact`` and what ``counts`` says of infinities and NaN."""
    pieces = _pieces(exact)
    if any(counts):
        number = _not_finite(*counts)
        alone = not pieces and counts == _counts(FloatSum(number))
        return FloatSum(number, None if alone else [*map(float, counts), *pieces])
    if _rounded(exact) == (pieces[0] if pieces else 0.0):
        return _of_parts(pieces, pieces[0], single) if pieces else FloatSum(0.0)
    return FloatSum(_rounded(exact), [0.0] * _COUNTS + pieces)


def _not_finite(plus: int, minus: int, nans: int) -> float:
    up, down = plus > 0 or minus < 0, minus > 0 or plus < 0
    return math.nan if nans or (up and down) else math.inf if up else -math.inf


def _pieces(exact: Fraction) -> list[float]:
    """As ``_numbers``, of a sum of any size: of one that is no DOUBLE the largest numbers there are come first."""
    pieces = []
    while exact:
        rounded = _rounded(exact)
        pieces.append(rounded if math.isfinite(rounded) else math.copysign(float_info.max, rounded))
        exact -= Fraction(pieces[-1])
    return pieces


def _rounded(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
