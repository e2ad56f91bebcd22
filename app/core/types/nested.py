"""ARRAY, MULTISET, MAP and ROW."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from app.core.errors import FaultCode
from app.core.hints import cut, some_of
from app.core.types.entry import Entry
from app.core.types.kinds import Family, Kind
from app.core.types.values import Decode, Encode, ValueFault, one_zero, shown, value_text, wrong

if TYPE_CHECKING:
    from app.core.types.datatype import DataType


def quote(name: str) -> str:
    """Return ``name`` as a quoted identifier of SQL, in Flink's spelling and in Spark's."""
    return "`" + name.replace("`", "``") + "`"


def _row_sql(data_type: DataType) -> str:
    return "ROW<" + ", ".join(f"{quote(f.name)} {f.type.sql}" for f in data_type.fields) + ">"


def _row_spark(data_type: DataType) -> str:
    return "STRUCT<" + ", ".join(f"{quote(f.name)}: {f.type.spark}" for f in data_type.fields) + ">"


def _map_spark(data_type: DataType) -> str:
    key, value = data_type.map_types
    return f"MAP<{key.spark}, {value.spark}>"


MOST_INSIDE: Final = 2**26  # bytes that the rows inside one value take
_LEAST_FIELD: Final = 64  # bytes that a field takes at least in memory; in answers its name is added


def _field_bytes(data_type: DataType) -> int:
    return sum(max(_LEAST_FIELD, len(field.name.encode()) + 8) for field in data_type.fields)


def _has_rows(data_type: DataType) -> bool:
    return data_type.kind is Kind.ROW or any(_has_rows(inner) for inner in _inner_types(data_type))


def _inner_types(data_type: DataType) -> Sequence[DataType]:
    if data_type.kind is Kind.ROW:
        return [field.type for field in data_type.fields]
    if data_type.kind is Kind.ARRAY:
        return [data_type.element_type]
    return data_type.map_types if data_type.nested else ()


def _row_bytes(data_type: DataType, value: Any) -> int:
    """Return the approximate size in bytes of the ROWs inside ``value`` after decoding, which has every field, sent or
    not.
    """
    if not _has_rows(data_type) or not isinstance(value, (list, dict)):
        return 0
    if data_type.kind is Kind.ROW:
        values = [value.get(field.name) for field in data_type.fields] if isinstance(value, dict) else value
        return _field_bytes(data_type) + sum(map(_row_bytes, _inner_types(data_type), values))
    if data_type.kind is Kind.ARRAY:
        return sum(_row_bytes(data_type.element_type, element) for element in value)
    pairs = value.items() if isinstance(value, dict) else map(_pair, value)
    return sum(sum(map(_row_bytes, data_type.map_types, pair)) for pair in pairs)


def _pair(entry: Any) -> Sequence[Any]:
    return (
        (entry.get("key"), entry.get("value")) if isinstance(entry, dict) else entry if isinstance(entry, list) else ()
    )


def _check_inside(data_type: DataType) -> Callable[[Any], None]:
    """Refuse a value whose decoded rows would be far larger than the sent ones: ``{}`` is a row with all its fields."""
    if not _has_rows(data_type):
        return lambda _: None

    def check(value: Any) -> None:
        if _row_bytes(data_type, value) > MOST_INSIDE:
            message = (
                f"the rows inside one value would take more than {MOST_INSIDE} bytes, with fields that are left out"
            )
            raise ValueFault(FaultCode.TOO_LONG, message, "send fewer elements, or declare fewer fields in the row")

    return check


def _array(data_type: DataType) -> Decode:
    element, check = data_type.element_type.decoder, _check_inside(data_type)
    expected = cut(f"an {data_type.base_sql}")  # once: a body may have as many faults as records

    def decode(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise wrong(expected, value, "send a JSON array")
        check(value)
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
    """Return the entries of a map, sent as an object, as pairs, or as objects with key and value; ``expected`` is what
    it should be.
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
    """Return the paths to the key and to the value of an entry: by its name in an object, by its place in a list."""
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
    check = _check_inside(data_type)

    def decode(value: Any) -> list[tuple[Any, Any]]:
        check(value)
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
