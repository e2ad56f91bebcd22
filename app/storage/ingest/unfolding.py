"""The size of Arrow columns once they are decoded: as dictionaries, views or nested values they can be far smaller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types


def decoded_type(source: pa.DataType) -> pa.DataType:
    """Return the type without its dictionaries, nested ones included. Those of other values than plain ones stay, and
    no column takes them.
    """
    if types.is_dictionary(source):
        value = source.value_type
        return source if types.is_nested(value) or types.is_dictionary(value) else without_views(value)
    if types.is_map(source):
        return pa.map_(decoded_type(source.key_type), decoded_type(source.item_type))
    if types.is_struct(source):
        return pa.struct([field.with_type(decoded_type(field.type)) for field in source])
    if types.is_list(source):
        return pa.list_(decoded_type(source.value_type))
    if types.is_large_list(source):
        return pa.large_list(decoded_type(source.value_type))
    if types.is_fixed_size_list(source):
        return pa.list_(decoded_type(source.value_type), source.list_size)
    return source


def without_views(source: pa.DataType) -> pa.DataType:
    """Return the type with the usual layout in place of views, nested ones included: pyarrow takes no rows of views."""
    if is_view(source):
        return pa.string() if types.is_string_view(source) else pa.binary()
    if types.is_map(source):
        key, item = (field.with_type(without_views(field.type)) for field in (source.key_field, source.item_field))
        return pa.map_(key, item, source.keys_sorted)
    if types.is_struct(source):
        return pa.struct([field.with_type(without_views(field.type)) for field in source])
    if types.is_list(source) or types.is_large_list(source) or types.is_fixed_size_list(source):
        element = source.value_field.with_type(without_views(source.value_type))
        if types.is_fixed_size_list(source):
            return pa.list_(element, source.list_size)
        return pa.large_list(element) if types.is_large_list(source) else pa.list_(element)
    return source


def is_view(source: pa.DataType) -> bool:
    """Return whether it is text or bytes in the layout of views."""
    return bool(types.is_string_view(source) or types.is_binary_view(source))


def weight_of(array: pa.Array) -> int:
    """Return about how many bytes a column has once it is read, of a ``decoded_type`` that some column takes. Values
    that take no bytes, such as nulls in lists, count as one.
    """
    if types.is_dictionary(array.type):
        return _of_dictionary(array)
    if is_view(array.type):
        return int(_viewed_lengths(array).sum()) + len(array)
    inner = [*_inside(array)]
    if inner:
        return 4 * len(array) + sum(map(weight_of, inner))
    return max(int(array.nbytes), len(array))


def _of_dictionary(array: pa.DictionaryArray) -> int:
    values = array.dictionary
    if is_view(values.type):
        lengths = pa.array(_viewed_lengths(values))
    elif _is_bytes(values.type):
        lengths = pc.binary_length(values).cast(pa.int64())
    else:
        return len(array) * _LARGEST_NUMBER
    return (pc.sum(lengths.take(array.indices)).as_py() or 0) + 4 * len(array)


_LARGEST_NUMBER = 32


def _is_bytes(source: pa.DataType) -> bool:
    checks = (
        types.is_string,
        types.is_large_string,
        types.is_binary,
        types.is_large_binary,
        types.is_fixed_size_binary,
    )
    return any(check(source) for check in checks)


def _viewed_lengths(array: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the length of each view in bytes, 0 of a null; each view is 16 bytes and begins with its length."""
    views = array.buffers()[1]
    if views is None:
        return np.zeros(len(array), np.int64)
    lengths = np.frombuffer(views, np.int32)[::4][array.offset : array.offset + len(array)]
    return np.where(array.is_valid().to_numpy(zero_copy_only=False), lengths, 0).astype(np.int64)


def _inside(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays directly inside a nested one, as far as its rows reach into them."""
    source = array.type
    if types.is_struct(source):
        yield from (array.field(place) for place in range(source.num_fields))
    elif types.is_fixed_size_list(source):
        yield array.values.slice(array.offset * source.list_size, len(array) * source.list_size)
    elif types.is_list(source) or types.is_large_list(source) or types.is_map(source):
        first, last = (array.offsets[place].as_py() for place in (0, -1)) if len(array) else (0, 0)
        inner = (array.keys, array.items) if types.is_map(source) else (array.values,)
        yield from (array.slice(first, last - first) for array in inner)
