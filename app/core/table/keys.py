"""Primary keys: their values from JSON and from text, and their token, the xxhash64 that Spark computes (design §1)."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import xxhash

from app.core.errors import ErrorCode, FaultCode, Invalid, Violation, escape_pointer
from app.core.table.schema import Column, TableSchema
from app.core.types.kinds import DataType
from app.core.types.scalars import ValueFault
from app.core.types.values import decoder, encoder, text_decoder

Key = tuple[Any, ...]
SEED = 42
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()


def _int(value: int) -> bytes:
    return struct.pack("<i", value)


def _long(value: int) -> bytes:
    return struct.pack("<q", value)


def _timestamp(value: datetime) -> bytes:
    delta = (value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH
    return _long((delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds)


def _decimal(value: Decimal, precision: int) -> bytes:
    """Up to 18 digits Spark hashes the unscaled number as a long, beyond that its shortest big-endian bytes."""
    sign, digits, _ = value.as_tuple()
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    if precision <= 18:
        return _long(unscaled)
    # As Java's BigInteger.bitLength(), which is one less than Python's for the powers of two below zero.
    bits = unscaled.bit_length() if unscaled >= 0 else (-unscaled - 1).bit_length()
    return unscaled.to_bytes(bits // 8 + 1, "big", signed=True)


_BYTES: Mapping[str, Callable[[Any, DataType], bytes]] = {
    "BOOLEAN": lambda v, _: _int(int(v)),
    **{kind: lambda v, _: _int(v) for kind in ("TINYINT", "SMALLINT", "INT", "TIME")},
    "BIGINT": lambda v, _: _long(v),
    "FLOAT": lambda v, _: struct.pack("<f", float("nan") if v != v else v + 0.0),
    "DOUBLE": lambda v, _: struct.pack("<d", float("nan") if v != v else v + 0.0),
    "DECIMAL": lambda v, t: _decimal(v, t.precision or 0),
    **{kind: lambda v, _: v.encode() for kind in ("CHAR", "VARCHAR", "STRING")},
    **{kind: lambda v, _: v for kind in ("BINARY", "VARBINARY", "BYTES")},
    "DATE": lambda v, _: _int(v.toordinal() - _EPOCH_DAY),
    **{kind: lambda v, _: _timestamp(v) for kind in ("TIMESTAMP", "TIMESTAMP_LTZ")},
}


def token_of(schema: TableSchema, key: Key) -> int:
    """The token of a key (values in primary-key order), a signed 64-bit number; equal to Spark's ``xxhash64(k1, k2,
    …)``.

    A null leaves the hash as it was, as in Spark.
    """
    token = SEED
    for column, value in zip(schema.key_columns, key, strict=True):
        if value is not None:
            encoded = _BYTES[column.type.kind](value, column.type)
            token = xxhash.xxh64_intdigest(encoded, seed=token & 0xFFFF_FFFF_FFFF_FFFF)
    token &= 0xFFFF_FFFF_FFFF_FFFF
    return token - (1 << 64) if token >= 1 << 63 else token


def key_from_text(schema: TableSchema, texts: Sequence[str]) -> Key:
    """The key whose column values are ``texts``, in primary-key order. Raises ``Invalid`` with every fault."""
    columns = schema.key_columns
    if len(texts) != len(columns):
        names = ", ".join(column.name for column in columns)
        message = f"the primary key has {len(columns)} columns ({names}), the request gives {len(texts)} values"
        raise _invalid([Violation("/key", FaultCode.WRONG_KEY_LENGTH, message, f"give one key= for each of: {names}")])
    read = [
        (column, lambda text=text, column=column: text_decoder(column.type)(text))
        for column, text in zip(columns, texts, strict=True)
    ]
    return _collect(read, "/key")


def key_from_json(schema: TableSchema, body: object, pointer: str) -> Key:
    """The key given as an object of key columns. Raises ``Invalid`` with every fault; ``pointer`` is the object's
    place.
    """
    names = ", ".join(schema.primary_key)
    if not isinstance(body, Mapping):
        raise _invalid(
            [
                Violation(
                    pointer,
                    FaultCode.NOT_AN_OBJECT,
                    "a key is an object of the key columns",
                    f"send an object with {names}",
                )
            ]
        )
    extra = [
        Violation(
            f"{pointer}/{escape_pointer(str(name))}",
            FaultCode.UNKNOWN_COLUMN,
            f"{name!r} is not a key column",
            f"key columns: {names}",
        )
        for name in body
        if name not in schema.primary_key
    ]
    if extra:
        raise _invalid(extra)
    read = [
        (column, lambda column=column: decoder(column.type)(body.get(column.name))) for column in schema.key_columns
    ]
    return _collect(read, pointer)


def _collect(read: Sequence[tuple[Column, Callable[[], Any]]], pointer: str) -> Key:
    values: list[Any] = []
    faults: list[Violation] = []
    for column, decode in read:
        try:
            values.append(normalised(column, decode()))
        except ValueFault as fault:
            where = f"{pointer}/{escape_pointer(column.name)}"
            faults.append(
                Violation(where, fault.code, f"key column {column.name!r}: {fault}", fault.fix, column=column.name)
            )
    if faults:
        raise _invalid(faults)
    return tuple(values)


def _invalid(faults: list[Violation]) -> Invalid:
    return Invalid("the key is not valid", code=ErrorCode.INVALID_KEY, violations=faults)


def normalised(column: Column, value: Any) -> Any:
    """A key value in the one form that equal keys share: -0.0 becomes 0.0, as Spark's grouping and hash take it."""
    return value + 0.0 if column.type.kind in ("FLOAT", "DOUBLE") and value is not None else value


def same_key(one: Key, other: Key) -> bool:
    """Whether both are one key, as Spark's grouping takes them: NaN is one value, unlike in Python."""
    return all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True))


def key_to_json(schema: TableSchema, key: Key) -> dict[str, Any]:
    """The key as an object of its columns."""
    return {column.name: encoder(column.type)(value) for column, value in zip(schema.key_columns, key, strict=True)}


def partition_text(schema: TableSchema, values: Mapping[str, Any]) -> str:
    """The partition of a row, as the JSON text that tells the partitions of its table apart."""
    by_name = schema.by_name
    shown = {name: encoder(by_name[name].type)(values[name]) for name in schema.partition_keys}
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))


def partition_of(schema: TableSchema, key: Key) -> str | None:
    """The partition that a key is in; None in a table without partition keys."""
    return partition_text(schema, dict(zip(schema.primary_key, key, strict=True))) if schema.partition_keys else None
