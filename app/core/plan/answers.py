"""Rows as lookups answer them: JSON bytes, and the tag that tells them from all others (decision 17)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import xxhash

from app.core.table.keys import Key
from app.core.table.schema import TableSchema

TAG_BYTES = 16


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def to_json(value: Any) -> bytes:
    """A JSON value as answers spell it. Raises ``ValueError`` for NaN, which types encode as text."""
    return _ENCODER.encode(value).encode()


def row_json(schema: TableSchema, row: Mapping[str, Any]) -> bytes:
    """A row, by column name, as a JSON object of all columns."""
    return to_json({column.name: column.type.encoder(row[column.name]) for column in schema.columns})


def tag_of(body: bytes) -> str:
    """What tells an answer from any other one: equal bytes have equal tags, however they were made."""
    return xxhash.xxh3_128_hexdigest(body)


def key_texts(schema: TableSchema, key: Key) -> list[bytes]:
    """The JSON text of each value of a key, in primary-key order."""
    return [
        b"%d" % value if entry.bits and value is not None else to_json(encode(value))
        for (_, entry, encode), value in zip(schema.key_types, key, strict=True)
    ]


def joined_key(texts: Sequence[bytes]) -> bytes:
    """``key_texts`` as a JSON array: equal for equal keys, and never the beginning of another key's."""
    return b"[" + b",".join(texts) + b"]"


def key_json(schema: TableSchema, key: Key) -> bytes:
    """As ``joined_key``, of a key's values."""
    return joined_key(key_texts(schema, key))
