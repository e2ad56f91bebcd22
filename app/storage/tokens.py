"""Tokens of many keys at once: what ``token_of`` says of each, whole numbers by the column."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from app.core.table.history import DataFile, Run
from app.core.table.keys import SEED, Key, token_of
from app.core.table.keys import tokens_of as tokens_one_by_one
from app.core.table.schema import TableSchema

Tokens = npt.NDArray[np.int64]
Places = npt.NDArray[np.intp]
_Words = npt.NDArray[np.uint64]
# https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md, XXH64
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


def tokens_of(schema: TableSchema, rows: pa.Table) -> Tokens:
    """The token of each row's key."""
    columns = [rows.column(name) for name in schema.primary_key]
    bits = [column.type.entry.bits for column in schema.key_columns]
    if all(bits) and not any(column.null_count for column in columns):
        return _of_whole_numbers([(column.to_numpy(), size) for column, size in zip(columns, bits, strict=True)])
    keys = zip(*(column.to_pylist() for column in columns), strict=True)
    return np.fromiter((token_of(schema, key) for key in keys), np.int64, rows.num_rows)


def tokens_of_keys(schema: TableSchema, keys: Sequence[Key]) -> Tokens:
    """The token of each key."""
    bits = [column.type.entry.bits for column in schema.key_columns]
    columns = list(zip(*keys, strict=True)) if all(bits) else []
    if not columns or any(None in column for column in columns):
        return np.array(tokens_one_by_one(schema, keys), dtype=np.int64)
    return _of_whole_numbers([(np.array(column, np.int64), size) for column, size in zip(columns, bits, strict=True)])


def shared_tokens(tokens: Sequence[Tokens]) -> Tokens:
    """The tokens that several of ``tokens``, each in ascending order, have, in ascending order; one that comes several
    times in one of them alone is not shared.
    """
    everything = np.concatenate([np.empty(0, np.int64), *map(_once, tokens)])
    everything.sort()
    return np.asarray(_once(everything[1:][everything[1:] == everything[:-1]]), np.int64)


def _once(tokens: Tokens) -> Tokens:
    """Each of some tokens in ascending order, once."""
    first = np.ones(len(tokens), dtype=bool)
    first[1:] = tokens[1:] != tokens[:-1]
    return tokens[first]


def files_with(run: Run, token: int) -> Iterator[DataFile]:
    """The files of a run in whose range ``token`` is, found in steps that are the logarithm of how many there are."""
    for place in range(bisect_left(run.last_tokens, token), len(run.files)):
        file = run.files[place]
        if file.min_token > token:
            return
        if token <= file.max_token:
            yield file


def files_with_any(run: Run, tokens: Tokens) -> Iterator[tuple[DataFile, Places]]:
    """The files of a run in whose range any of ``tokens`` is, each with the places of these, ascending."""
    firsts = np.searchsorted(np.frombuffer(run.last_tokens, dtype=np.int64), tokens)
    order = np.argsort(firsts, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(firsts[order])) + 1) if len(order) else ():
        near = tokens[places]
        for place in range(firsts[places[0]], len(run.files)):
            file = run.files[place]
            if file.min_token > near.max():
                break
            held = (near >= file.min_token) & (near <= file.max_token)
            if held.any():
                yield file, places[held]


def _of_whole_numbers(columns: list[tuple[npt.NDArray[np.integer], int]]) -> Tokens:
    tokens = np.full(len(columns[0][0]), SEED, np.uint64)
    for values, bits in columns:
        tokens = _long_hash(values, tokens) if bits > 32 else _int_hash(values, tokens)
    return tokens.view(np.int64)


def _long_hash(values: npt.NDArray[np.integer], seeds: _Words) -> _Words:
    mixed = seeds + _P5 + np.uint64(8)
    mixed ^= _rotated(values.astype(np.int64).view(np.uint64) * _P2, 31) * _P1
    return _avalanched(_rotated(mixed, 27) * _P1 + _P4)


def _int_hash(values: npt.NDArray[np.integer], seeds: _Words) -> _Words:
    mixed = seeds + _P5 + np.uint64(4)
    mixed ^= values.astype(np.int32).view(np.uint32).astype(np.uint64) * _P1
    return _avalanched(_rotated(mixed, 23) * _P2 + _P3)


def _rotated(words: _Words, bits: int) -> _Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _avalanched(words: _Words) -> _Words:
    words = (words ^ (words >> np.uint64(33))) * _P2
    words = (words ^ (words >> np.uint64(29))) * _P3
    return words ^ (words >> np.uint64(32))
