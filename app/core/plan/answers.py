"""Rows as lookups answer them: JSON bytes, and the tag that tells them from all others (decision 17)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from app.core.table.keys import Key
from app.core.table.schema import TableSchema

TAG_BYTES = 12


def to_json(value: Any) -> bytes:
    """A JSON value as answers spell it. Raises ``ValueError`` for NaN, which types encode as text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def row_json(schema: TableSchema, row: Mapping[str, Any]) -> bytes:
    """A row, by column name, as a JSON object of all columns."""
    return to_json({column.name: column.type.encoder(row[column.name]) for column in schema.columns})


def tag_of(body: bytes) -> str:
    """What tells an answer from any other one: equal bytes have equal tags, however they were made."""
    return blake2b(body, digest_size=TAG_BYTES).hexdigest()


def key_json(schema: TableSchema, key: Key) -> bytes:
    """A key as a JSON array in primary-key order: equal for equal keys, and never the beginning of another key's."""
    return to_json([column.type.encoder(value) for column, value in zip(schema.key_columns, key, strict=True)])
