"""A few values of any type, as JSON: small and different, for examples of functions."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from app.core.types.datatype import DataType
from app.core.types.kinds import Family, Kind

PLACES: Final = range(3)
_NUMBERS: Final = (3, 5, 2)  # their sum, product, largest, smallest, first and last differ
# Longest sample value; BINARY(n) may declare more.
_MOST_BYTES: Final = 64

Sample = Callable[[DataType, int], Any]


def sample(data_type: DataType, place: int) -> Any:
    """Return the value of the type at ``place``, one of ``PLACES``."""
    return SAMPLES[data_type.family](data_type, place)


def samples(data_type: DataType) -> list[Any]:
    """Return the sample values of the type, with nulls in between if it is nullable and not nested."""
    values = [sample(data_type, place) for place in PLACES]
    scalar = data_type.family not in (Family.ARRAY, Family.MAP, Family.ROW)
    return [None, *values, None] if scalar and data_type.nullable else values


def _decimal(data_type: DataType, place: int) -> str:
    scale = data_type.scale or 0
    whole = (data_type.precision or 0) > scale
    unit = Decimal(1).scaleb(-scale)
    number = Decimal(_NUMBERS[place]).quantize(unit) if whole else _NUMBERS[place] * unit
    return format(number, "f")


def _bytes(data_type: DataType, place: int) -> str:
    length = min(data_type.length or 1, _MOST_BYTES) if data_type.kind is Kind.BINARY else 1
    return base64.b64encode(bytes([_NUMBERS[place]]) * length).decode()


def _moment(data_type: DataType, place: int) -> str:
    return f"2026-03-0{_NUMBERS[place]}T10:00:00" + "Z" * (data_type.kind is Kind.TIMESTAMP_LTZ)


def _map(data_type: DataType, place: int) -> Any:
    """The third entry has the key of the first one: one of the two remains."""
    key_type, value_type = data_type.map_types
    key, value = sample(key_type, place % 2), place + 1
    if data_type.kind is not Kind.MULTISET:
        value = sample(value_type, place)
    return {key: value} if isinstance(key, str) else [[key, value]]


def _row(data_type: DataType, place: int) -> Any:
    """The first field of the third row is that of the first one: it may be a nested key."""
    return {
        field.name: sample(field.type, place if number else place % 2) for number, field in enumerate(data_type.fields)
    }


SAMPLES: Final[Mapping[Family, Sample]] = {
    Family.BOOLEAN: lambda _, place: place < 2,
    Family.INTEGER: lambda _, place: _NUMBERS[place],
    Family.FLOATING: lambda _, place: _NUMBERS[place] + 0.5,
    Family.DECIMAL: _decimal,
    Family.TEXT: lambda _, place: "bca"[place],
    Family.BINARY: _bytes,
    Family.DATE: lambda _, place: f"2026-03-0{_NUMBERS[place]}",
    Family.TIME: lambda _, place: f"10:00:0{_NUMBERS[place]}",
    Family.TIMESTAMP: _moment,
    Family.ARRAY: lambda data_type, place: [sample(data_type.element_type, place)],
    Family.MAP: _map,
    Family.ROW: _row,
}
