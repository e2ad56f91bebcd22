"""Comparable forms of nested values: they define which values are equal to the functions over arrays and maps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from typing import Any

from app.core.types.datatype import DataType
from app.core.types.kinds import Family
from app.core.types.numbers import float_rank

Key = Callable[[Any], Hashable]


@lru_cache(maxsize=1024)
def key_of(data_type: DataType) -> Key:
    """Return a function that makes a comparable value of a value of the type, or of null: equal values give equal
    results. The order of a map's entries does not count.
    """
    made = _KEYS.get(data_type.family)
    if made is None:
        return _itself
    key = made(data_type)
    return lambda value: None if value is None else key(value)


def _itself(value: Any) -> Hashable:
    key: Hashable = value
    return key


def _array(data_type: DataType) -> Key:
    inner = key_of(data_type.element_type)
    return lambda value: tuple([inner(item) for item in value])


def _row(data_type: DataType) -> Key:
    inner = [(field.name, key_of(field.type)) for field in data_type.fields]
    return lambda value: tuple([key(value[name]) for name, key in inner])


def _map(data_type: DataType) -> Key:
    key_type, value_type = data_type.map_types
    key, inner = key_of(key_type), key_of(value_type)
    return lambda value: frozenset([(key(k), inner(v)) for k, v in value])


def _float(_: DataType) -> Key:
    # Spark takes NaN for equal to itself, and -0.0 for equal to 0.0.
    return lambda value: ("float", float_rank(value + 0.0))


_KEYS: Mapping[Family, Callable[[DataType], Key]] = {
    Family.ARRAY: _array,
    Family.ROW: _row,
    Family.MAP: _map,
    Family.FLOATING: _float,
}
