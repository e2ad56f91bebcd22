"""ARRAY, MULTISET, MAP and ROW."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from app.core.errors import FaultCode
from app.core.hints import cut, some_of
from app.core.types.entry import Entry
from app.core.types.kinds import Family, Kind
from app.core.types.values import Decode, Encode, ValueFault, one_zero, shown, value_text, wrong

if TYPE_CHECKING:
    from app.core.types.datatype import DataType


def quote(name: str) -> str:
    """``name`` as a quoted identifier of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def _row_sql(data_type: DataType) -> str:
    return "ROW<" + ", ".join(f"{quote(f.name)} {f.type.sql}" for f in data_type.fields) + ">"


def _row_spark(data_type: DataType) -> str:
    return "STRUCT<" + ", ".join(f"{quote(f.name)}: {f.type.spark}" for f in data_type.fields) + ">"


def _map_spark(data_type: DataType) -> str:
    key, value = data_type.map_types
    return f"MAP<{key.spark}, {value.spark}>"


def _array(data_type: DataType) -> Decode:
    element = data_type.element_type.decoder
    expected = cut(f"an {data_type.base_sql}")  # once: a body may have as many faults as records

    def decode(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise wrong(expected, value, "send a JSON array")
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


def _row(data_type: DataType) -> Decode:
    decoders = {field.name: field.type.decoder for field in data_type.fields}
    expected, known = cut(f"a {data_type.base_sql}"), f"fields: {some_of(decoders)}"

    def decode(value: Any) -> dict[str, Any]:
        if isinstance(value, list) and len(value) == len(decoders):
            items = enumerate(zip(decoders.items(), value, strict=True))
            return {name: _at(place, decode_field, item) for place, ((name, decode_field), item) in items}
        if not isinstance(value, dict):
            raise wrong(expected, value, "send a JSON object with the field names")
        for name in value:
            if name not in decoders:
                raise ValueFault(FaultCode.UNKNOWN_FIELD, f"the row has no field {cut(name)!r}", known, (name,))
        return {name: _at(name, decode, value.get(name)) for name, decode in decoders.items()}

    return decode


def _entries(value: Any, expected: str) -> list[tuple[Any, Any]]:
    """The entries of a map, sent as an object, as pairs, or as objects with key and value; ``expected`` is what it
    should be.
    """
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list):
        pairs = [
            (e.get("key"), e.get("value")) if isinstance(e, dict) and e.keys() <= {"key", "value"} else e for e in value
        ]
        if all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs):
            return [(pair[0], pair[1]) for pair in pairs]
    raise wrong(expected, value, "send an object, or a list of [key, value] pairs")


def _entry_paths(value: Any, place: int, key: Any) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """What leads to the key and the value of an entry: in an object its name, in a list its place."""
    if isinstance(value, dict):
        return (key,), (key,)
    if isinstance(value[place], dict):
        return (place, "key"), (place, "value")
    return (place, 0), (place, 1)


def _counting(decode: Decode) -> Decode:
    def decode_count(value: Any) -> int:
        count: int = decode(value)
        if count < 1:
            raise ValueFault(FaultCode.OUT_OF_RANGE, f"{count} is no count of a MULTISET", "send counts from 1")
        return count

    return decode_count


def _map(data_type: DataType) -> Decode:
    key_type, value_type = data_type.map_types
    decode_key, read_text = key_type.with_nullable(False).decoder, key_type.text_decoder
    counted = data_type.kind is Kind.MULTISET
    expected = cut(f"a {data_type.base_sql}")
    decode_value = _counting(value_type.decoder) if counted else value_type.decoder

    def decode(value: Any) -> list[tuple[Any, Any]]:
        from_object = isinstance(value, dict)
        entries, seen = [], set()
        read_key = read_text if from_object else decode_key
        for place, (raw_key, raw_value) in enumerate(_entries(value, expected)):
            key_path, value_path = _entry_paths(value, place, raw_key)
            key = one_zero(_inside(key_path, read_key, raw_key))
            if repr(key) in seen:
                fault = ValueFault(
                    FaultCode.DUPLICATE_KEY, f"the map names the key {shown(raw_key)} twice", "send each key once"
                )
                raise fault.inside(raw_key if from_object else place)
            seen.add(repr(key))
            entries.append((key, _inside(value_path, decode_value, raw_value)))
        return entries

    return decode


def _encode_array(data_type: DataType) -> Encode:
    element = data_type.element_type.encoder
    return lambda value: [element(item) for item in value]


def _encode_row(data_type: DataType) -> Encode:
    fields = {field.name: field.type.encoder for field in data_type.fields}
    return lambda value: {name: encode(value[name]) for name, encode in fields.items()}


def _encode_map(data_type: DataType) -> Encode:
    key_type, value_type = data_type.map_types
    encode_key, encode_value = key_type.encoder, value_type.encoder
    if not key_type.legal_key:
        return lambda value: [[encode_key(k), encode_value(v)] for k, v in value]
    return lambda value: {value_text(encode_key(k)): encode_value(v) for k, v in value}


NESTED: Mapping[Kind, Entry] = {
    Kind.ARRAY: Entry(
        Family.ARRAY,
        spark=lambda data_type: f"ARRAY<{data_type.element_type.spark}>",
        decode=_array,
        encode=_encode_array,
        sql=lambda data_type: f"ARRAY<{data_type.element_type.sql}>",
        inside={"element": "element"},
    ),
    Kind.MULTISET: Entry(
        Family.MAP,
        spark=_map_spark,
        decode=_map,
        encode=_encode_map,
        sql=lambda data_type: f"MULTISET<{data_type.element_type.sql}>",
        inside={"element": "element"},
    ),
    Kind.MAP: Entry(
        Family.MAP,
        spark=_map_spark,
        decode=_map,
        encode=_encode_map,
        sql=lambda data_type: f"MAP<{data_type.key_type.sql}, {data_type.element_type.sql}>",
        inside={"key": "key", "value": "element"},
    ),
    Kind.ROW: Entry(
        Family.ROW,
        spark=_row_spark,
        decode=_row,
        encode=_encode_row,
        sql=_row_sql,
        inside={"fields": "fields"},
    ),
}
