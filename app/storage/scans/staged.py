"""Keys that have staged records, by partition and token."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from app.core.table.keys import Key, normalised, partition_of
from app.core.table.schema import TableSchema
from app.files.tokens import Tokens
from app.storage.staging.staged_index import StagedBatch, StagedIndex

_NONE = np.empty(0, dtype=np.int64)


class KeysApart(Protocol):
    """Keys whose rows are combined as lookups do, for they may have staged records."""

    @property
    def tokens(self) -> Tokens:
        """The token of each record, ascending."""

    def keys(self, schema: TableSchema) -> Iterator[tuple[int, Key]]:
        """Yield the token and the key of each record."""


@dataclass(frozen=True)
class StagedKeys:
    """Where the staged records of one partition are, by token: the number of the batch and the row in it of each."""

    tokens: Tokens
    numbers: Tokens
    rows: Tokens
    batches: Mapping[int, StagedBatch]

    @classmethod
    def none(cls) -> StagedKeys:
        """No records."""
        return cls(_NONE, _NONE, _NONE, {})

    def within(self, first: int, last: int) -> StagedKeys:
        """Return those whose token is from ``first`` to ``last``."""
        start = int(np.searchsorted(self.tokens, np.int64(first)))
        return self._slice(start, int(np.searchsorted(self.tokens, np.int64(last), side="right")))

    def split(self, bound: int | None) -> tuple[StagedKeys, StagedKeys]:
        """Return those before the token ``bound``, all for None, and the others."""
        count = len(self.tokens) if bound is None else int(np.searchsorted(self.tokens, np.int64(bound)))
        return self._slice(0, count), self._slice(count, len(self.tokens))

    def pieces(self, most_bytes: int) -> Iterator[int]:
        """Tokens before which to cut, so that the records between two of them take about ``most_bytes``."""
        if not len(self.tokens):
            return
        means = {number: batch.size_bytes / max(1, batch.rows.num_rows) for number, batch in self.batches.items()}
        numbers, places = np.unique(self.numbers, return_inverse=True)
        sizes = np.cumsum(np.array([means[number] for number in numbers.tolist()])[places])
        cuts = np.searchsorted(sizes, np.arange(most_bytes, sizes[-1], most_bytes))
        yield from np.unique(self.tokens[cuts]).tolist()

    def _slice(self, start: int, end: int) -> StagedKeys:
        return StagedKeys(self.tokens[start:end], self.numbers[start:end], self.rows[start:end], self.batches)

    def keys(self, schema: TableSchema) -> Iterator[tuple[int, Key]]:
        """Yield the token and the key of each record."""
        for token, number, row in zip(self.tokens.tolist(), self.numbers.tolist(), self.rows.tolist(), strict=True):
            yield token, _key_at(schema, self.batches[number], row)


def staged_keys(schema: TableSchema, index: StagedIndex) -> Mapping[str | None, StagedKeys]:
    """Return the records of ``index`` by partition of the table, whose schema is ``schema``."""
    if not index.segments:
        return {}
    tokens, numbers, rows = (
        np.concatenate([np.asarray(column, dtype=np.int64) for column in columns])
        for columns in zip(*((one.tokens, one.batches, one.rows) for one in index.segments), strict=True)
    )
    order = np.argsort(tokens, kind="stable")
    everything = StagedKeys(tokens[order], numbers[order], rows[order], index.batches)
    if not schema.partition_keys:
        return {None: everything}
    places: dict[str | None, list[int]] = defaultdict(list)
    for place, (_, key) in enumerate(everything.keys(schema)):
        places[partition_of(schema, key)].append(place)
    return {
        partition: StagedKeys(everything.tokens[at], everything.numbers[at], everything.rows[at], index.batches)
        for partition, at in places.items()
    }


def _key_at(schema: TableSchema, batch: StagedBatch, row: int) -> Key:
    names = batch.schema.primary_key
    columns = schema.key_columns
    values = (batch.rows.column(name)[row].as_py() for name in names)
    return tuple(normalised(column, value) for column, value in zip(columns, values, strict=True))
