"""Exact sums of FLOAT and DOUBLE by whole columns: equal to ``app.core.rules.float_sums`` for short sums.

A short sum is a finite number with a rest of one number at most. Most sums are: together they hold 106 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.float64]
Truths = npt.NDArray[np.bool_]
Part = tuple[pa.Array, pa.Array | None]
"""Numbers of a column, and their rests where there may be any."""


@dataclass(frozen=True)
class FloatSums:
    """Sums of many rows. The numbers and rests of sums that are not ``short`` are meaningless."""

    short: Truths
    _numbers: npt.NDArray[Any]
    _rests: Numbers  # 0 if there is none

    @property
    def numbers(self) -> pa.Array:
        """The sums, rounded to the type of the column."""
        return pa.array(self._numbers)

    @property
    def rests(self) -> pa.Array:
        """The rounding errors, as lists of one number; null if there is none."""
        some = self._rests != 0
        offsets = np.concatenate([[0], np.cumsum(some)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(self._rests[some]), mask=pa.array(~some))


def float_sums(parts: Sequence[Part], *, single: bool) -> FloatSums:
    """Return the sums of ``parts``, row by row; ``single``: rounded to FLOAT, else to DOUBLE."""
    with np.errstate(all="ignore"):
        return _rounded_to_float(*_added(parts)) if single else FloatSums(*_added(parts))


def _added(parts: Sequence[Part]) -> tuple[Truths, Numbers, Numbers]:
    """Return which sums are short, and these as a number and its rest.

    A sum is short if no TwoSum on the way lost anything, and if the last one is finite: then all of them were.
    """
    (total, missing, short), *others = (_numbers_of(part) for part in parts)
    for numbers, rests, known in others:
        total, lost = _two_sum(total, numbers)
        missing, lost_of_rests = _two_sum(missing, rests)
        missing, lost = _two_sum(lost, missing)
        short = short & known & (lost == 0) & (lost_of_rests == 0)
    number, rest = _two_sum(total, missing)
    # Where nothing is missing, the total has the sign of zero: -0.0 if all numbers are -0.0.
    return short & np.isfinite(rest), np.where(missing == 0, total, number), rest


def _rounded_to_float(short: Truths, numbers: Numbers, rests: Numbers) -> FloatSums:
    """Return sums rounded to FLOAT. Those that are no DOUBLE are not short: they would be rounded twice."""
    rounded = numbers.astype(np.float32)
    return FloatSums(short & (rests == 0) & np.isfinite(rounded), rounded, numbers - rounded)


def _numbers_of(part: Part) -> tuple[Numbers, Numbers, Truths]:
    """Return numbers, their rests (0 if there is none), and which of these are one number at most."""
    numbers = np.asarray(part[0]).astype(np.float64)
    rests, known = np.zeros(len(numbers)), np.ones(len(numbers), dtype=bool)
    if part[1] is not None:
        lengths = np.asarray(pc.fill_null(pc.list_value_length(part[1]), 0))
        has_one = lengths == 1
        rests[has_one] = np.asarray(part[1].values)[np.asarray(part[1].offsets)[:-1][has_one]]
        known = lengths <= 1
    return numbers, rests, known


def _two_sum(a: Numbers, b: Numbers) -> tuple[Numbers, Numbers]:
    """Return the rounded sum, and its rounding error: exact (Knuth), or not finite if a step overflows."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)
