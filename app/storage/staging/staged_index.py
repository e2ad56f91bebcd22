"""The staged index: the records of a table's staged batches by token, in memory (docs/decisions/0018)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from app.core.table.history import Batch
from app.core.table.keys import Key, same_key
from app.core.table.records import Record
from app.core.table.schema import TableSchema
from app.files.layout import Warehouse
from app.files.tokens import Tokens
from app.storage.staging.staging import read_batch, read_bounded_batch, staged_record

# Memory of a record: its token, twice, its batch and its row.
_PLACE_BYTES = 32


@dataclass(frozen=True)
class StagedBatch:
    """A staged batch in memory: its rows and their tokens as its file has them, and the schema that they were written
    under.
    """

    number: int
    schema: TableSchema
    rows: pa.Table
    tokens: Tokens

    def record(self, row: int) -> tuple[TableSchema, Record]:
        """Return the record in a row."""
        values = {name: self.rows.column(name)[row].as_py() for name in self.rows.column_names}
        return self.schema, staged_record(self.schema, self.number, values)

    def is_of(self, key: Key, row: int) -> bool:
        """Return whether the record in a row has the key."""
        return same_key(tuple(self.rows.column(name)[row].as_py() for name in self.schema.primary_key), key)

    @cached_property  # asking Arrow costs more than loading a batch, and every load asks it of all
    def size_bytes(self) -> int:
        """Memory that it takes, its places in the index included."""
        size: int = self.rows.nbytes + _PLACE_BYTES * self.rows.num_rows
        return size


@dataclass(frozen=True)
class _Segment:
    """Where the records of some batches are, sorted by token and then by arrival: three columns of 64-bit numbers."""

    tokens: memoryview[int]
    batches: Tokens
    rows: Tokens

    @classmethod
    def from_columns(cls, tokens: Tokens, batches: Tokens, rows: Tokens) -> _Segment:
        """Return the places of records, sorted by token. The arguments have those of one token in arrival order."""
        order = np.argsort(tokens, kind="stable")
        return cls(_numbers(tokens[order]), batches[order], rows[order])

    def __len__(self) -> int:
        return len(self.tokens)

    def only(self, numbers: Collection[int]) -> _Segment:
        """Return the places in the batches ``numbers``."""
        mask = np.isin(self.batches, list(numbers))
        return _Segment(_numbers(np.asarray(self.tokens)[mask]), self.batches[mask], self.rows[mask])

    def __add__(self, later: _Segment) -> _Segment:
        tokens = np.concatenate([np.asarray(self.tokens), np.asarray(later.tokens)])
        batches = np.concatenate([self.batches, later.batches])
        return _Segment.from_columns(tokens, batches, np.concatenate([self.rows, later.rows]))

    def holds(self, token: int) -> bool:
        """Return whether a record has the token."""
        first = bisect_left(self.tokens, token)
        return first < len(self.tokens) and self.tokens[first] == token

    def places(self, token: int) -> Iterator[tuple[int, int]]:
        """Yield the (batch number, row) of each record with the token."""
        first = bisect_left(self.tokens, token)
        for place in range(first, bisect_right(self.tokens, token, lo=first)):
            yield int(self.batches[place]), int(self.rows[place])


def _numbers(tokens: Tokens) -> memoryview[int]:
    """Return the same numbers for ``bisect``, which reads them faster so than from the array."""
    return memoryview(tokens.data).cast("B").cast("q")


@dataclass(frozen=True)
class StagedIndex:
    """The records of staged batches by token. A value: a running lookup keeps what it has while batches come and go.

    A new batch makes a new segment. A segment is joined with the one before it once it is half as large, so there are
    few.
    """

    batches: Mapping[int, StagedBatch] = field(default_factory=dict)
    segments: tuple[_Segment, ...] = ()

    @cached_property
    def size_bytes(self) -> int:
        """Memory that it takes."""
        return sum(batch.size_bytes for batch in self.batches.values())

    def holds(self, token: int) -> bool:
        """Return whether a key with the token may have records."""
        return any(segment.holds(token) for segment in self.segments)

    def records(self, token: int, key: Key) -> Iterator[tuple[TableSchema, Record]]:
        """Yield the key's records in arrival order, each with the schema that it was written under."""
        for segment in self.segments:
            for number, row in segment.places(token):
                batch = self.batches[number]
                if batch.is_of(key, row):
                    yield batch.record(row)

    def without(self, numbers: Collection[int]) -> StagedIndex:
        """Return the index without the batches ``numbers``."""
        left = {number: batch for number, batch in self.batches.items() if number not in numbers}
        if len(left) == len(self.batches):
            return self
        segments = (segment.only(left) for segment in self.segments)
        return StagedIndex(left, tuple(segment for segment in segments if len(segment)))

    def extended(self, batch: StagedBatch) -> StagedIndex:
        """Return the index with a batch that came after all that are in it."""
        tokens = batch.tokens
        added = _Segment.from_columns(tokens, np.full(len(tokens), batch.number, np.int64), np.arange(len(tokens)))
        segments = [*self.segments, added]
        while len(segments) > 1 and len(segments[-2]) <= 2 * len(segments[-1]):
            later = segments.pop()
            segments[-1] += later
        return StagedIndex({**self.batches, batch.number: batch}, tuple(segments))


def load_bounded_batch(warehouse: Warehouse, batch: Batch, schema: TableSchema, most_bytes: int) -> StagedBatch | None:
    """Return as ``load_batch``, or None for a batch that takes more than ``most_bytes`` of memory. Raise the same."""
    read = read_bounded_batch(warehouse, batch, schema, most_bytes - _PLACE_BYTES * batch.records)
    return None if read is None else StagedBatch(batch.number, schema, read.rows, read.tokens)


def load_batch(warehouse: Warehouse, batch: Batch, schema: TableSchema) -> StagedBatch:
    """Return the batch in memory. Raise ``DamagedFile``; ``missing`` also where the batch has left the staging area."""
    read = read_batch(warehouse, batch, schema)
    return StagedBatch(batch.number, schema, read.rows, read.tokens)
