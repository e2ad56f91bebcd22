"""Sums of floats restated in fractions and independently of ``app.core``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction


def exact_sum(values: Sequence[tuple[float | None, bool]], *, single: bool) -> float | None:
    """The sum of values, each added or taken back, without error and rounded once, to FLOAT or to DOUBLE."""
    counted = [(value, add) for value, add in values if value is not None]
    if not counted:
        return None
    infinite = {one: sum(1 if add else -1 for v, add in counted if v == one) for one in (math.inf, -math.inf)}
    nans = sum(1 if add else -1 for v, add in counted if v != v)
    signs = {math.copysign(1.0, one) * times > 0 for one, times in infinite.items() if times}
    if nans or len(signs) == 2:
        return math.nan
    if signs:
        return math.inf if signs == {True} else -math.inf
    if all(add and v == 0 and math.copysign(1.0, v) < 0 for v, add in counted):
        return -0.0
    exact = sum((Fraction(v) * (1 if add else -1) for v, add in counted if math.isfinite(v)), Fraction(0))
    return _nearest(exact, *((24, -149, 128) if single else (53, -1074, 1024)))


def _nearest(exact: Fraction, digits: int, lowest: int, end: int) -> float:
    """The number of so many binary digits that is nearest to ``exact``, of two the one whose last digit is 0."""
    if not exact:
        return 0.0
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent  # now 2**exponent <= size < 2**(exponent + 1)
    unit = Fraction(2) ** max(exponent + 1 - digits, lowest)
    rounded = round(size / unit) * unit
    number = math.inf if rounded >= Fraction(2) ** end else float(rounded)
    return number if exact > 0 else -number
