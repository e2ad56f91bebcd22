"""Values between Python and JSON: exact both ways, for BIGINT and DECIMAL too."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from keyfold_client.errors import Misuse

Decoder = Callable[[Any], Any]
Key = Any
"""The value of a key of one column, a tuple of those of several, or a mapping by name."""


def to_json(value: Any) -> str:
    """Return records as JSON. Raise ``Misuse`` for a value that no column takes."""
    try:
        return json.dumps(value, default=_plain, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError):  # the service reads such keys of a MAP, and such numbers, as texts
        return json.dumps(_with_texts(value), default=_plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Return what ``json`` knows no form of as what the service reads it from."""
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if hasattr(value, "tolist"):  # a number or an array of NumPy
        return _with_texts(value.tolist())
    raise Misuse(f"a {type(value).__name__} is no value of a column: {str(value)[:100]!r}")


def _number(value: Any) -> Any:
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"


def _with_texts(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {to_text(name): _with_texts(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_texts(item) for item in value]
    return _number(value)


def to_text(value: Any) -> str:
    """Return the value of a key column as a query parameter says it, or of a key of a MAP."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    return str(_number(value) if isinstance(value, (int, float)) else _plain(value))


@dataclass(frozen=True)
class Schema:
    """A table's columns, each with the function that makes Python values of JSON values, and its key."""

    decoders: Mapping[str, Decoder]
    primary_key: Sequence[str]

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any]) -> Schema:
        """Return the schema in the answer for a table."""
        fields = answer["schema"]["fields"]
        decoders = {one["name"]: decoder_of(one["type"]) for one in fields}
        return cls(decoders, tuple(answer["schema"]["primaryKeys"]))

    def row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row of JSON with Python's values."""
        decoders = self.decoders
        return {name: None if value is None else decoders.get(name, _same)(value) for name, value in row.items()}

    def key(self, key: Key) -> dict[str, Any]:
        """Return a key by column. Raise ``Misuse`` for one with other columns."""
        parts = key if isinstance(key, tuple) else (key,)
        named = dict(key) if isinstance(key, Mapping) else dict(zip(self.primary_key, parts, strict=False))
        if named.keys() != set(self.primary_key) or (not isinstance(key, Mapping) and len(parts) != len(named)):
            raise Misuse(f"{key!r} is no key: the table's key is {', '.join(self.primary_key)}")
        return named


def _kind_of(of: Any) -> str:
    """Return the first word of a type: its name, or an object with those of its parts."""
    return str(of["type"] if isinstance(of, Mapping) else of).partition("(")[0].split()[0]


def decoder_of(of: Any) -> Decoder:
    """Return what makes a Python value of the JSON of a type: its name, or an object with those of its parts."""
    kind = _kind_of(of)
    if not isinstance(of, Mapping):
        return _DECODERS.get(kind, _same)
    return _NESTED[kind](of)


def _same(value: Any) -> Any:
    return value


def _of_text(read: Callable[[str], Any]) -> Decoder:
    """Return what reads texts and keeps what it cannot read: a sketch is shown as a number, and a day before the year 1
    is none of Python's calendar.
    """

    def decode(value: Any) -> Any:
        try:
            return read(value) if isinstance(value, str) else value
        except ValueError:
            return value

    return decode


_DECODERS: Final[Mapping[str, Decoder]] = {
    "BIGINT": _of_text(int),  # a text where the table or the service says integers = text
    "DECIMAL": _of_text(Decimal),
    "FLOAT": _of_text(float),
    "DOUBLE": _of_text(float),
    "DATE": _of_text(date.fromisoformat),
    "TIME": _of_text(time.fromisoformat),
    "TIMESTAMP": _of_text(datetime.fromisoformat),
    "TIMESTAMP_LTZ": _of_text(datetime.fromisoformat),
    "BYTES": _of_text(base64.b64decode),
    "BINARY": _of_text(base64.b64decode),
    "VARBINARY": _of_text(base64.b64decode),
}
_WHOLE: Final = frozenset({"TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT"})


def _optional(of: Any) -> Decoder:
    decode = decoder_of(of)
    return lambda value: None if value is None else decode(value)


def _array(of: Mapping[str, Any]) -> Decoder:
    decode = _optional(of["element"])
    return lambda values: [decode(value) for value in values]


def _map(of: Mapping[str, Any]) -> Decoder:
    key, decode = _key_decoder(of["key"]), _optional(of["value"])
    return lambda values: {key(name): decode(value) for name, value in values.items()}


def _multiset(of: Mapping[str, Any]) -> Decoder:
    key = _key_decoder(of["element"])
    return lambda values: {key(name): count for name, count in values.items()}


def _key_decoder(of: Any) -> Decoder:
    """Return what makes values of the keys of a map, which are texts in JSON."""
    kind = _kind_of(of)
    if kind in _WHOLE:
        return _of_text(int)
    if kind == "BOOLEAN":
        return lambda text: text == "true"
    return decoder_of(of)


def _row(of: Mapping[str, Any]) -> Decoder:
    decoders = {field["name"]: _optional(field["type"]) for field in of["fields"]}
    return lambda values: {name: decoders.get(name, _same)(value) for name, value in values.items()}


_NESTED: Final[Mapping[str, Callable[[Mapping[str, Any]], Decoder]]] = {
    "ARRAY": _array,
    "MAP": _map,
    "MULTISET": _multiset,
    "ROW": _row,
}
