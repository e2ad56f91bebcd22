"""Ranges of totals: what the rows of a run add up to at most, so that few merges have to look for overflows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

TotalRanges = Mapping[str, Sequence[str]]
"""By column the least and the greatest total of some rows, 0 included: decimal numbers as text."""
UNBOUNDED: Final[Sequence[str]] = ("-Infinity", "Infinity")  # a total is outside its column's type


def total_range(values: Iterable[Any]) -> Sequence[str]:
    """Return the range of numbers, and of texts of numbers; None counts as 0."""
    numbers = [Decimal(0), *(Decimal(value) for value in values if value is not None)]
    return str(min(numbers)), str(max(numbers))


def joined(ranges: Iterable[TotalRanges]) -> TotalRanges:
    """Return the ranges of all rows together."""
    union: dict[str, Sequence[str]] = {}
    for name, ends in (item for ranges_of_run in ranges for item in ranges_of_run.items()):
        union[name] = total_range((*union.get(name, ()), *ends))
    return union
