"""The places of values in an order of records, whole columns at a time: equal to ``app.core.rules.order`` for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from app.core.rules.order import CONVERTED, Floor, OrderField
from app.core.types.kinds import Family

Numbers = npt.NDArray[np.int64]
# It has each BIGINT: of two values in nanoseconds a double does not show by how many they differ.
Amounts = npt.NDArray[np.longdouble]
_FLOORS = {Floor.SECOND: 1_000_000, Floor.MILLISECOND: 1_000}
# One in the unit of the type, in the unit of the measure.
_UNITS: Mapping[Family, float] = {Family.TIMESTAMP: 1e-6, Family.DATE: 86_400.0, Family.TIME: 1e-3}


def ranks_of(values: pa.Array, field: OrderField) -> Numbers:
    """Return the place of each value among all, from 1 on; 0 for null."""
    family = field.column.type.family
    present = values.drop_null()
    if field.integral and family in CONVERTED:
        upwards = replace(field, descending=False)
        numbers = np.array([upwards.rank(value)[1] for value in present.to_pylist()], dtype=object)
        dense = np.unique(numbers, return_inverse=True)[1].reshape(-1)
    elif family is Family.FLOATING:  # NaN last
        dense = np.unique(present.to_numpy(zero_copy_only=False), return_inverse=True)[1].reshape(-1)
    elif field.floor and family is Family.TIMESTAMP:
        cut = present.cast(pa.int64()).to_numpy(zero_copy_only=False) // _FLOORS[field.floor]
        dense = np.unique(cut, return_inverse=True)[1].reshape(-1)
    else:
        dense = pc.rank(present, tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.int64) - 1
    if field.descending:
        dense = int(dense.max(initial=0)) - dense
    ranked = np.zeros(len(values), dtype=np.int64)
    ranked[np.asarray(values.is_valid())] = dense + 1
    return ranked


def joined_ranks(ranks: Sequence[Numbers]) -> Numbers:
    """Return the places of all fields of an order as one, from 1 on."""
    joined = ranks[0]
    for later in ranks[1:]:
        joined = np.unique(joined * (int(later.max(initial=0)) + 1) + later, return_inverse=True)[1].reshape(-1)
    return joined + 1


def amounts_of(values: pa.Array, field: OrderField) -> Amounts:
    """Return the values of a field in the unit of its type (``unit_of``), NaN where it has none.

    They are cut as the order cuts them, so that all values of one place have one amount.
    """
    kind, family = values.type, field.column.type.family
    amounts = np.full(len(values), np.nan, dtype=np.longdouble)
    present = values.drop_null()
    if pa.types.is_timestamp(kind) or pa.types.is_integer(kind):
        numbers = present.cast(pa.int64())
    elif pa.types.is_date(kind):
        numbers = present.cast(pa.int32())
    elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        numbers = present.cast(pa.float64(), safe=False)
    else:
        return amounts
    cut = numbers.to_numpy(zero_copy_only=False)
    if field.floor and family is Family.TIMESTAMP:
        cut = cut // _FLOORS[field.floor] * _FLOORS[field.floor]
    elif field.integral and family in CONVERTED:
        cut = np.trunc(cut)
    amounts[np.asarray(values.is_valid())] = cut
    return amounts


def unit_of(field: OrderField) -> float:
    """Return the size of one unit of a field's type, in units of its measure (``late_lanes``)."""
    return _UNITS.get(field.column.type.family, 1.0)
