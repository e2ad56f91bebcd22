"""Rows of two sides that have the same key: by token and whole columns if these decide, else key by key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.core.table.keys import Key
from app.core.table.schema import TableSchema
from app.files.tokens import Tokens
from app.storage.scans.merging import keys_of


@dataclass(frozen=True)
class KeyedRows:
    """Rows with the columns of their keys, by token."""

    tokens: Tokens
    batch: pa.RecordBatch

    def take(self, places: Tokens) -> pa.RecordBatch:
        """Return the rows at ``places``."""
        return self.batch.take(pa.array(places))

    def without(self, places: Tokens) -> pa.RecordBatch:
        """Return the rows but those at ``places``."""
        mask = np.ones(len(self.tokens), dtype=bool)
        mask[places] = False
        return self.batch.filter(pa.array(mask))


def paired(schema: TableSchema, ones: KeyedRows, others: KeyedRows) -> tuple[Tokens, Tokens]:
    """Return the places of the rows whose key is on both sides, in the one and in the other."""
    if _once(ones.tokens) and _once(others.tokens):
        _, one, other = np.intersect1d(ones.tokens, others.tokens, assume_unique=True, return_indices=True)
        sides = (ones.batch, pa.array(one)), (others.batch, pa.array(other))
        if all(_same(*(batch.column(name).take(at) for batch, at in sides)) for name in schema.primary_key):
            return one, other
    keys = [_keys(schema, side.batch) for side in (ones, others)]  # several keys have one token, or a key is NaN
    places = {key: place for place, key in enumerate(keys[1])}
    pairs = [(place, places[key]) for place, key in enumerate(keys[0]) if key in places]
    one, other = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return one, other


def _once(tokens: Tokens) -> bool:
    return not bool(np.any(tokens[1:] == tokens[:-1]))


def _same(ones: pa.Array, others: pa.Array) -> bool:
    return pc.all(pc.equal(ones, others), skip_nulls=False, min_count=0).as_py() is True


def _keys(schema: TableSchema, batch: pa.RecordBatch) -> Sequence[Key]:
    return list(keys_of(schema, batch.select(list(schema.primary_key)).to_pylist()))
