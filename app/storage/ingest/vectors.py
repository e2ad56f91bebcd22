"""One column of a body read at once, and the places that its decoder must look at itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.core.types.datatype import DataType
from app.files.arrow import arrow_type

Places = np.ndarray[tuple[int], np.dtype[np.int64]]
NOWHERE: Places = np.empty(0, np.int64)


@dataclass(frozen=True)
class Vector:
    """The values of a column as its Arrow type, null if there is none.

    At ``suspects``, which are no nulls of the body, ``array`` says nothing: whether the value is one of the column's,
    and which, only the column's decoder says. Everywhere else ``array`` holds what the decoder would have made of it.
    """

    array: pa.Array
    suspects: Places = field(default_factory=lambda: NOWHERE)


def places(mask: pa.Array) -> Places:
    """Return where ``mask`` is true; a null is not."""
    known = pc.fill_null(mask, False) if mask.null_count else mask
    known_places: Places = np.flatnonzero(known.to_numpy(zero_copy_only=False))
    return known_places


def present(array: pa.Array) -> Places:
    """Return where ``array`` is not null."""
    return places(array.is_valid()) if array.null_count else np.arange(len(array))


def nothing_known(data_type: DataType, array: pa.Array) -> Vector:
    """Return a vector whose every value is a suspect."""
    return Vector(pa.nulls(len(array), arrow_type(data_type)), present(array))


def replaced(vector: pa.Array, at: Places, values: list[Any]) -> pa.Array:
    """Return ``vector`` with ``values`` at the places ``at``."""
    if not len(at):
        return vector
    new = pa.array(values, vector.type)
    if len(at) == len(vector):
        return new
    takes = np.arange(len(vector))
    takes[at] = len(vector) + np.arange(len(at))
    return pa.concat_arrays([vector, new]).take(pa.array(takes))
