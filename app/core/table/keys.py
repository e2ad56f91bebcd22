"""Primary keys: their values from JSON and from text, and their token, the xxhash64 that Spark computes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import xxhash

from app.core.errors import ErrorCode, FaultCode, Invalid, Violation, escape_pointer
from app.core.table.schema import Column, TableSchema
from app.core.types.datatype import DataType
from app.core.types.kinds import Family
from app.core.types.values import Decode, ValueFault

Key = tuple[Any, ...]
SEED = 42


def token_of(schema: TableSchema, key: Key) -> int:
    """Return the token of a key (values in primary-key order), a signed 64-bit number; equal to Spark's ``xxhash64(k1,
    k2, …)``.

    A null does not change the hash, as in Spark.
    """
    return tokens_of(schema, (key,))[0]


def tokens_of(schema: TableSchema, keys: Sequence[Key]) -> list[int]:
    """Return ``token_of`` of each of ``keys``."""
    tokens = []
    for key in keys:
        token = SEED
        for (data_type, entry, _), value in zip(schema.key_types, key, strict=True):
            if value is not None and entry.hashed is not None:
                token = xxhash.xxh64_intdigest(entry.hashed(value, data_type), seed=token)
        tokens.append(token - (1 << 64) if token >= 1 << 63 else token)
    return tokens


def hash_of(data_type: DataType, value: Any, seed: int) -> int:
    """Return the hash of one value of a key on top of that of the values before it, ``seed``; no sign."""
    hashed = data_type.entry.hashed
    return seed if value is None or hashed is None else xxhash.xxh64_intdigest(hashed(value, data_type), seed=seed)


def key_from_text(schema: TableSchema, texts: Sequence[str]) -> Key:
    """Return the key whose column values are ``texts``, in primary-key order. Raise ``Invalid`` with every fault."""
    columns = schema.key_columns
    if len(texts) != len(columns):
        names = ", ".join(column.name for column in columns)
        message = f"the primary key has {len(columns)} columns ({names}), the request gives {len(texts)} values"
        raise _invalid([Violation("/key", FaultCode.WRONG_KEY_LENGTH, message, f"give one key= for each of: {names}")])
    read = [
        (column, lambda text=text, column=column: column.type.text_decoder(text))
        for column, text in zip(columns, texts, strict=True)
    ]
    return _collect(read, "/key")


def key_from_json(schema: TableSchema, body: object, pointer: str) -> Key:
    """Return the key given as an object of key columns. Raise ``Invalid`` with every fault; ``pointer`` is the object's
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
    read = [(column, lambda column=column: column.type.decoder(body.get(column.name))) for column in schema.key_columns]
    return _collect(read, pointer)


def keys_from_json(schema: TableSchema, bodies: Sequence[object], pointer: str) -> list[Key]:
    """Return the keys of a list of objects at ``pointer``. Raise ``Invalid`` with the faults of all of them."""
    read = [(column.name, _key_decoder(column)) for column in schema.key_columns]
    keys: list[Key] = []
    faults: list[Violation] = []
    for place, body in enumerate(bodies):
        try:
            if not isinstance(body, dict) or len(body) != len(read):
                raise KeyError(place)
            keys.append(tuple([decode(body[name]) for name, decode in read]))
        except (ValueFault, KeyError):
            try:
                keys.append(key_from_json(schema, body, f"{pointer}/{place}"))
            except Invalid as invalid:
                faults += invalid.violations
    if faults:
        raise _invalid(faults)
    return keys


def _key_decoder(column: Column) -> Decode:
    """Return the decoder of a key value in its one form (``normalised``)."""
    decode = column.type.decoder
    return (lambda value: normalised(column, decode(value))) if column.type.family is Family.FLOATING else decode


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
    """Return a key value in the one form that equal keys share: -0.0 becomes 0.0, as Spark's grouping and hash take
    it.
    """
    return value + 0.0 if column.type.family is Family.FLOATING and value is not None else value


def same_key(one: Key, other: Key) -> bool:
    """Return whether both are one key, as Spark's grouping takes them: NaN is one value, unlike in Python."""
    return all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True))


def key_to_json(schema: TableSchema, key: Key) -> dict[str, Any]:
    """Return the key as an object of its columns."""
    return {column.name: column.type.encoder(value) for column, value in zip(schema.key_columns, key, strict=True)}


def partition_text(schema: TableSchema, values: Mapping[str, Any]) -> str:
    """Return the partition of a row, as a JSON text that no other partition of its table has."""
    by_name = schema.by_name
    shown = {name: by_name[name].type.encoder(values[name]) for name in schema.partition_keys}
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))


def partition_of(schema: TableSchema, key: Key) -> str | None:
    """Return the partition that a key is in; None in a table without partition keys."""
    return partition_text(schema, dict(zip(schema.primary_key, key, strict=True))) if schema.partition_keys else None
