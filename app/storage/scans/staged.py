"""Keys that have staged records, by partition and token."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from app.core.plan.merging.merge_plan import MergePlan
from app.core.table.keys import Key, normalised, partition_of
from app.core.table.schema import TableSchema
from app.files.run_files import run_schema
from app.files.tokens import Tokens
from app.kernel.blame import blamed_records
from app.kernel.fold import fold_of, folded
from app.kernel.keys import grouped
from app.kernel.records import Records, pieces_of, records_under
from app.storage.staging.staged_index import StagedBatch, StagedIndex

_NONE = np.empty(0, dtype=np.int64)
_NO_TIME: Final = 0  # of a merge: what is only shown is not stored


class StagedStates(Protocol):
    """Staged records that are newer than the runs."""

    @property
    def tokens(self) -> Tokens:
        """The token of each record, ascending."""

    def states(self, plan: MergePlan) -> pa.Table:
        """Return the state row of each key under ``plan``, by token. Raise ``Unfoldable``."""


@dataclass(frozen=True)
class StagedKeys:
    """Where the staged records of one partition are, by token: the number of the batch and the row in it of each."""

    tokens: Tokens
    numbers: Tokens
    rows: Tokens
    batches: Mapping[int, StagedBatch]

    @classmethod
    def none(cls) -> StagedKeys:
        """Return no records."""
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
        """Yield the tokens before which to cut, so that the records between two of them take about ``most_bytes``."""
        if not len(self.tokens):
            return
        means = {number: batch.size_bytes / max(1, batch.rows.num_rows) for number, batch in self.batches.items()}
        numbers, places = np.unique(self.numbers, return_inverse=True)
        sizes = np.cumsum(np.array([means[number] for number in numbers.tolist()])[places])
        cuts = np.searchsorted(sizes, np.arange(most_bytes, sizes[-1], most_bytes))
        yield from np.unique(self.tokens[cuts]).tolist()

    def _slice(self, start: int, end: int) -> StagedKeys:
        return StagedKeys(self.tokens[start:end], self.numbers[start:end], self.rows[start:end], self.batches)

    def states(self, plan: MergePlan) -> pa.Table:
        """Return the state row of each key under ``plan``, by token. Raise ``Unfoldable``."""
        fold, states = fold_of(plan.schema), [run_schema(plan).empty_table()]
        for piece in pieces_of([self._records(plan.schema, number) for number in np.unique(self.numbers).tolist()]):
            groups = grouped(plan.schema, piece.tokens, piece.rows)
            with blamed_records(plan, groups, piece.rows, _NO_TIME):
                states.append(folded(fold, groups, piece.rows, _NO_TIME))
        return pa.concat_tables(states)

    def _records(self, schema: TableSchema, number: int) -> Records:
        batch, chosen = self.batches[number], self.numbers == number
        rows = batch.rows.take(pa.array(self.rows[chosen]))
        return records_under(schema, batch.schema, number, Records(self.tokens[chosen], rows))

    def keys(self, schema: TableSchema) -> Iterator[Key]:
        """Yield the key of each record."""
        for number, row in zip(self.numbers.tolist(), self.rows.tolist(), strict=True):
            yield _key_at(schema, self.batches[number], row)


def staged_keys(schema: TableSchema, index: StagedIndex) -> Mapping[str | None, StagedKeys]:
    """Return the records of ``index`` by partition of the table, whose schema is ``schema``."""
    if not index.segments:
        return {}
    tokens, numbers, rows = (
        np.concatenate([np.asarray(column, dtype=np.int64) for column in columns])
        for columns in zip(
            *((segment.tokens, segment.batches, segment.rows) for segment in index.segments), strict=True
        )
    )
    order = np.argsort(tokens, kind="stable")
    everything = StagedKeys(tokens[order], numbers[order], rows[order], index.batches)
    if not schema.partition_keys:
        return {None: everything}
    places: dict[str | None, list[int]] = defaultdict(list)
    for place, key in enumerate(everything.keys(schema)):
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
