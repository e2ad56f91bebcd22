"""Differences between two values of a column, as a reader sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from app.core.functions.equality import key_of
from app.core.table.schema import Column
from app.core.types.kinds import Family

Flags = npt.NDArray[np.bool_]


def unlike(before: pa.Array, after: pa.Array, column: Column) -> Flags:
    """Return in which rows the values of two columns differ: null from all others, NaN from no
    NaN, maps in any order.
    """
    return np.asarray(_COMPARE.get(column.type.family, _differs)(before, after, column), dtype=bool)


def _differs(before: pa.Array, after: pa.Array, _: Column) -> pa.Array:
    one_is_null = pc.xor(pc.is_null(before), pc.is_null(after))
    return pc.coalesce(pc.not_equal(before, after), one_is_null)


def _floats_differ(before: pa.Array, after: pa.Array, column: Column) -> pa.Array:
    both = pc.and_(pc.fill_null(pc.is_nan(before), False), pc.fill_null(pc.is_nan(after), False))
    return pc.and_not(_differs(before, after, column), both)


def _nested_differ(before: pa.Array, after: pa.Array, column: Column) -> pa.Array:
    content = key_of(column.type)
    pairs = zip(before.to_pylist(), after.to_pylist(), strict=True)
    return [content(one) != content(other) for one, other in pairs]


_COMPARE: Mapping[Family, Callable[[pa.Array, pa.Array, Column], pa.Array]] = {
    Family.FLOATING: _floats_differ,
    **dict.fromkeys((Family.ARRAY, Family.MAP, Family.ROW), _nested_differ),
}
