"""Rows as lookups answer them: JSON bytes, and the tag that distinguishes them from all others (decision 17)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import xxhash

from app.core.table.keys import Key
from app.core.table.schema import TableSchema

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_CELL = 8  # bytes of a number, a null, an element


def to_json(value: Any) -> bytes:
    """Return a JSON value as answers spell it. Raise ``ValueError`` for NaN, which types encode as text."""
    return _ENCODER.encode(value).encode()


def row_json(schema: TableSchema, row: Mapping[str, Any]) -> bytes:
    """Return a row, by column name, as a JSON object of all columns."""
    return to_json({name: encode(row[name]) for name, encode in schema.encoders})


def weight(value: Any) -> int:
    """Return about how many bytes a value of a row, or a row, takes in an answer."""
    if isinstance(value, (str, bytes)):
        return len(value) + _CELL
    if isinstance(value, (list, tuple)):
        return _CELL + sum(map(weight, value))
    if isinstance(value, dict):
        return _CELL + sum(map(weight, value)) + sum(map(weight, value.values()))
    return _CELL


def tag_of(body: bytes) -> str:
    """Return the ETag of an answer: equal bytes have equal tags, however they were made."""
    return xxhash.xxh3_128_hexdigest(body)


def key_texts(schema: TableSchema, keys: Sequence[Key]) -> list[list[bytes]]:
    """Return for each column of the primary key the JSON texts of the values that ``keys`` have there."""
    columns = zip(*keys, strict=True) if keys else ((),) * len(schema.primary_key)
    return [
        [b"%d" % value for value in values]
        if entry.bits and None not in values
        else [to_json(encode(value)) for value in values]
        for (_, entry, encode), values in zip(schema.key_types, columns, strict=True)
    ]


def joined_keys(texts: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Return each key as a JSON array, made of ``key_texts``. Equal keys have equal arrays, and no array is a prefix
    of another key's.
    """
    if len(texts) == 1:
        return [b"[%b]" % text for text in texts[0]]
    return [b"[" + b",".join(parts) + b"]" for parts in zip(*texts, strict=True)]


def key_json(schema: TableSchema, key: Key) -> bytes:
    """Return one key as ``joined_keys`` does for many."""
    parts = [
        b"%d" % value if entry.bits and value is not None else to_json(encode(value))
        for (_, entry, encode), value in zip(schema.key_types, key, strict=True)
    ]
    return b"[" + b",".join(parts) + b"]"
