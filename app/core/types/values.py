"""Values of each data type: read strictly from JSON or text, written as JSON (design §6).

In memory: BOOLEAN bool, integers int, FLOAT and DOUBLE float, DECIMAL Decimal, text str, binary bytes, DATE date, TIME
the milliseconds of the day, TIMESTAMP a naive and TIMESTAMP_LTZ a UTC datetime, ARRAY list, ROW dict by field name,
MAP and MULTISET a list of (key, value) pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from app.core.errors import FaultCode
from app.core.types.kinds import DataType
from app.core.types.scalars import SCALAR_FORMS, Decode, Encode, ValueFault, ValueForm, shown, wrong


def _array(data_type: DataType) -> Decode:
    element = decoder(data_type.element_type)

    def decode(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise wrong(f"an {data_type.base_sql}", value, "send a JSON array")
        return [_at(index, element, item) for index, item in enumerate(value)]

    return decode


def _at(segment: object, decode: Decode, value: Any) -> Any:
    try:
        return decode(value)
    except ValueFault as fault:
        raise fault.inside(segment) from None


def _inside(path: tuple[object, ...], decode: Decode, value: Any) -> Any:
    try:
        return decode(value)
    except ValueFault as fault:
        for segment in reversed(path):
            fault = fault.inside(segment)
        raise fault from None


def one_zero(value: Any) -> Any:
    """-0.0 as 0.0: keys that Spark takes for equal have one form."""
    return value + 0.0 if isinstance(value, float) else value


def _row(data_type: DataType) -> Decode:
    decoders = {field.name: decoder(field.type) for field in data_type.fields}

    def decode(value: Any) -> dict[str, Any]:
        if isinstance(value, list) and len(value) == len(decoders):
            items = enumerate(zip(decoders.items(), value, strict=True))
            return {name: _at(place, decode_field, item) for place, ((name, decode_field), item) in items}
        if not isinstance(value, dict):
            raise wrong(f"a {data_type.base_sql}", value, "send a JSON object with the field names")
        for name in value:
            if name not in decoders:
                raise ValueFault(
                    FaultCode.UNKNOWN_FIELD, f"the row has no field {name!r}", f"fields: {', '.join(decoders)}", (name,)
                )
        return {name: _at(name, decode, value.get(name)) for name, decode in decoders.items()}

    return decode


def _entries(value: Any, data_type: DataType) -> list[tuple[Any, Any]]:
    """The entries of a map, sent as an object, as pairs, or as objects with key and value."""
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list):
        pairs = [
            (e.get("key"), e.get("value")) if isinstance(e, dict) and e.keys() <= {"key", "value"} else e for e in value
        ]
        if all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs):
            return [(pair[0], pair[1]) for pair in pairs]
    raise wrong(f"a {data_type.base_sql}", value, "send an object, or a list of [key, value] pairs")


def _entry_paths(value: Any, place: int, key: Any) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """What leads to the key and the value of an entry: in an object its name, in a list its place."""
    if isinstance(value, dict):
        return (key,), (key,)
    if isinstance(value[place], dict):
        return (place, "key"), (place, "value")
    return (place, 0), (place, 1)


def _count(value: Any) -> int:
    count: int = decoder(DataType("INT", nullable=False))(value)
    if count < 1:
        raise ValueFault(FaultCode.OUT_OF_RANGE, f"{count} is no count of a MULTISET", "send counts from 1")
    return count


def _map(data_type: DataType) -> Decode:
    multiset = data_type.kind == "MULTISET"
    key_type = data_type.element_type if multiset else data_type.key_type
    decode_key = decoder(key_type.with_nullable(False))
    decode_element = _count if multiset else decoder(data_type.element_type)

    def decode(value: Any) -> list[tuple[Any, Any]]:
        from_object = isinstance(value, dict)
        entries, seen = [], set()
        read_key = text_decoder(key_type) if from_object else decode_key
        for place, (raw_key, raw_element) in enumerate(_entries(value, data_type)):
            key_path, element_path = _entry_paths(value, place, raw_key)
            key = one_zero(_inside(key_path, read_key, raw_key))
            if repr(key) in seen:
                fault = ValueFault(
                    FaultCode.DUPLICATE_KEY, f"the map names the key {shown(raw_key)} twice", "send each key once"
                )
                raise fault.inside(raw_key if from_object else place)
            seen.add(repr(key))
            entries.append((key, _inside(element_path, decode_element, raw_element)))
        return entries

    return decode


def _encode_array(data_type: DataType) -> Encode:
    element = encoder(data_type.element_type)
    return lambda value: [element(item) for item in value]


def _encode_row(data_type: DataType) -> Encode:
    fields = {field.name: encoder(field.type) for field in data_type.fields}
    return lambda value: {name: encode(value[name]) for name, encode in fields.items()}


def _encode_map(data_type: DataType) -> Encode:
    multiset = data_type.kind == "MULTISET"
    key_type = data_type.element_type if multiset else data_type.key_type
    encode_key = encoder(key_type)
    encode_element = encoder(DataType("INT") if multiset else data_type.element_type)
    if not key_type.legal_key:
        return lambda value: [[encode_key(k), encode_element(v)] for k, v in value]
    return lambda value: {value_text(encode_key(k)): encode_element(v) for k, v in value}


def value_text(encoded: Any) -> str:
    """A scalar's JSON value as text, as it stands in a URL or an object's member name."""
    if isinstance(encoded, bool):
        return "true" if encoded else "false"
    return encoded if isinstance(encoded, str) else str(encoded)


FORMS: Mapping[str, ValueForm] = {
    **SCALAR_FORMS,
    "ARRAY": ValueForm(_array, _encode_array),
    "ROW": ValueForm(_row, _encode_row),
    **{kind: ValueForm(_map, _encode_map) for kind in ("MAP", "MULTISET")},
}


@lru_cache(maxsize=4096)
def decoder(data_type: DataType) -> Decode:
    """A function from a JSON value (numbers with a fraction may be Decimal) to the value of ``data_type``.

    It raises ``ValueFault``.
    """
    decode = FORMS[data_type.kind].decode(data_type)
    if data_type.nullable:
        return lambda value: None if value is None else decode(value)

    def decode_not_null(value: Any) -> Any:
        if value is None:
            raise ValueFault(FaultCode.NULL_IN_NOT_NULL, f"null in a {data_type.sql} column", "send a value")
        return decode(value)

    return decode_not_null


@lru_cache(maxsize=4096)
def encoder(data_type: DataType) -> Encode:
    """A function from a value of ``data_type`` (or None) to its JSON form."""
    encode = FORMS[data_type.kind].encode(data_type)
    return lambda value: None if value is None else encode(value)


def text_decoder(data_type: DataType) -> Callable[[str], Any]:
    """A function from the text of a scalar (in a URL, a default, a map's member name) to its value."""
    decode = decoder(data_type.with_nullable(False))
    from_text = FORMS[data_type.kind].from_text
    return decode if from_text is None else lambda text: decode(from_text(data_type, text))
