"""Python values as Arrow arrays of a stored column, and the error for values that no column can hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from app.core.errors import Unfoldable


class UnfoldableValue(Unfoldable):
    """A value that its column cannot hold, or that its rule cannot read."""

    def __init__(
        self, column: str | None, reason: str, key: Mapping[str, Any] | None = None, batch: int | None = None
    ) -> None:
        """``key`` is the primary key by column, as JSON has it; ``batch`` the number of the batch."""
        column_text = "" if column is None else f"column {column!r}"
        places = (column_text, "" if key is None else f"key {dict(key)}", "" if batch is None else f"batch {batch}")
        super().__init__(f"{', '.join(place for place in places if place)}: {reason}", batch)
        self.column = column
        self.reason = reason
        self.key = key


def values_array(column: str, values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    """Return ``values`` as an array. Raise ``UnfoldableValue`` if its type cannot hold one."""
    try:
        return pa.array(values, data_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise UnfoldableValue(column, f"a value of the fold is out of range: {error}") from error
