"""Runs of many records, made in this process of whole columns and written as Spark's merges write them
(docs/decisions/0044).

Each record becomes a state row by itself (``app.storage.lifted_columns``). Those whose key comes again are combined, by
whole columns as well (``app.storage.combined_columns``); where columns cannot tell, these records are folded one by
one, if they are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from app.core.plan.merge_plan import MergePlan
from app.core.rules.accumulators import Sum
from app.core.table.history import Batch, Run
from app.core.table.keys import partition_text
from app.core.table.records import TOKEN_COLUMN
from app.core.table.schema import TableSchema
from app.core.types.kinds import Family
from app.storage.ahead import ahead, memory_given_back
from app.storage.combined_columns import Allowance, ColumnSteps, combined
from app.storage.folded_runs import RecordsByToken
from app.storage.layout import Warehouse
from app.storage.lifted_columns import lifted, numbered
from app.storage.named_files import file_of_batch, opened_parquet
from app.storage.run_files import MANY_ROWS, LeftToSpark, row_groups, state_table, write_run_file
from app.storage.staging import read_batch, staged_record
from app.storage.tokens import Tokens, tokens_of

MOST_FOLDED_VALUES: Final = 100_000  # of records that columns cannot tell of, times the columns of a state row: 0.2 s
MOST_FOLDED_BYTES: Final = 2**20  # of these in memory; as Python's objects some hundred times as much at worst
MOST_PARTITIONS: Final = 100
PART_BYTES: Final = 16 * 2**20  # of records that are made state rows together
_TEXT_BYTES, _NESTED_BYTES = 5, 16  # in memory, of a value beside what it takes in a file

Places = npt.NDArray[np.int64]


def write_lifted_runs(
    warehouse: Warehouse,
    table_id: str,
    folder: str,
    plan: MergePlan,
    batches: Sequence[Batch],
    now: int,
    most_bytes: int,
    go_on: Callable[[], None],
) -> tuple[Run, ...]:
    """Write the state rows of the records of ``batches``, which were written under the plan's schema, at ``now`` (epoch
    seconds) as a run of one file below ``folder``, or one in each partition. They are durable after ``sync_runs``.
    ``go_on`` is called now and then, and may raise.

    Raises ``LeftToSpark`` where the records take more than ``most_bytes`` in memory, or a rule needs the values of
    more than a few; ``DamagedFile`` and ``TokenShared``; what else it raises, of values that Arrow or Python cannot
    hold, says nothing about the batches.
    """
    if any(column.type.family is Family.FLOATING for column in plan.schema.key_columns):
        raise LeftToSpark("-0.0 and 0.0 are one key")
    in_order = sorted(batches, key=lambda batch: batch.number)
    with memory_given_back(_size_in_memory(warehouse, in_order, most_bytes)):
        return _written(
            warehouse, table_id, folder, _merge_of(warehouse, plan, in_order, now), batches[0].schema_id, go_on
        )


def _merge_of(warehouse: Warehouse, plan: MergePlan, batches: Sequence[Batch], now: int) -> _Merge:
    keys = [_keys(warehouse, batch, plan.schema) for batch in batches]
    tokens = np.concatenate([tokens_of(plan.schema, of_batch) for of_batch in keys])
    partitions = _partitions(plan.schema, pa.concat_tables(keys))
    order = np.argsort(tokens, kind="stable") if partitions is None else np.lexsort((tokens, partitions))
    of_key = [one[order] for one in (tokens, partitions) if one is not None]
    same = np.all([one[1:] == one[:-1] for one in of_key], axis=0)
    if same.any() and not _folds_alike(plan):
        raise LeftToSpark("keys come several times")
    rows = pa.concat_tables([read_batch(warehouse, batch, plan.schema) for batch in batches]).combine_chunks()
    numbers = np.repeat([batch.number for batch in batches], [batch.records for batch in batches])
    return _Merge(plan, ColumnSteps.of_merge(plan), now, tokens, partitions, rows, numbers, order, same)


@dataclass(frozen=True, eq=False)
class _Merge:
    """What is merged: the ``rows`` of all batches in order of arrival, with the token of each, the number of its
    partition, if there are any, and that of its batch; their ``order`` by partition, token and arrival; of all but the
    first in that order, whether it has the key of the one before.
    """

    plan: MergePlan
    steps: ColumnSteps
    now: int
    tokens: Tokens
    partitions: Places | None
    rows: pa.Table
    numbers: Places
    order: Places
    same: npt.NDArray[np.bool_]
    # The values that may still be combined, and folded, one by one.
    combined: Allowance = field(default_factory=lambda: Allowance(MOST_FOLDED_VALUES))
    folded: Allowance = field(default_factory=lambda: Allowance(MOST_FOLDED_VALUES))

    def partition_text(self, number: int) -> str | None:
        """What says which partition it is; None where there are none."""
        if self.partitions is None:
            return None
        first = int(np.flatnonzero(self.partitions == number)[0])
        [values] = self.rows.select(list(self.plan.schema.partition_keys)).slice(first, 1).to_pylist()
        return partition_text(self.plan.schema, values)

    @property
    def at_once(self) -> int:
        """How many records become state rows together."""
        widened = len(self.plan.state_columns) / len(self.plan.schema.columns)
        return max(1, int(len(self.rows) * PART_BYTES / (max(1, self.rows.nbytes) * widened)))

    def pieces(self) -> Iterator[tuple[int, pa.Table]]:
        """Partition after partition its number and state rows, by token."""
        again = np.append(False, self.same)
        again[:-1] |= self.same
        starts = np.flatnonzero(np.append(True, ~self.same))
        for number, part in _parts(self._ends, starts, self.at_once):
            yield number, self._states(self.order[part], again[part])

    @property
    def _ends(self) -> Places:
        """Where each partition ends."""
        if self.partitions is None:
            return np.array([len(self.order)])
        return np.cumsum(np.bincount(self.partitions))

    def _states(self, places: Places, again: npt.NDArray[np.bool_]) -> pa.Table:
        """The state rows of the records at ``places``, all of each key; which come ``again``."""
        states = self._lifted(places[~again])
        if not again.any():
            return states
        both = pa.concat_tables([states, self._folded(places[again])])
        return both.take(pa.array(np.argsort(both[TOKEN_COLUMN].to_numpy())))

    def _lifted(self, places: Places) -> pa.Table:
        return lifted(self.plan, self.tokens[places], self.rows.take(pa.array(places)), self.now)

    def _folded(self, places: Places) -> pa.Table:
        try:
            return combined(self.steps, self.tokens[places], self._lifted(places), self.combined)
        except (LeftToSpark, pa.ArrowInvalid):  # the latter of totals that no type holds while they are combined
            self.folded.take(len(places) * len(self.plan.state_columns))
        return self._folded_one_by_one(places, self.rows.take(pa.array(places)))

    def _folded_one_by_one(self, places: Places, rows: pa.Table) -> pa.Table:
        if rows.nbytes > MOST_FOLDED_BYTES:
            raise LeftToSpark("records of keys that come several times are large")
        found = RecordsByToken(self.plan.schema)
        told = zip(self.tokens[places].tolist(), self.numbers[places].tolist(), rows.to_pylist(), strict=True)
        for token, number, row in told:
            found.add(token, staged_record(self.plan.schema, number, row))
        return state_table(self.plan, found.states(self.plan, self.now))


def _parts(ends: Places, starts: Places, at_once: int) -> Iterator[tuple[int, slice]]:
    """Parts of about so many records, none over the end of a partition, and the partition's number; the records of a
    key, of which each begins at one of ``starts``, are in one.
    """
    start = 0
    for number, end in enumerate(ends.tolist()):
        while start < end:
            place = int(np.searchsorted(starts, start + at_once))
            following = min(end, int(starts[place])) if place < len(starts) else end
            yield number, slice(start, following)
            start = following


def _folds_alike(plan: MergePlan) -> bool:
    """Whether a fold of several records gives the very bytes that Spark's gives: unions of sketches do not, and sums of
    binary fractions are rounded at other steps.
    """
    sums = [rule.column.type.family for rule in plan.rules if isinstance(rule, Sum)]
    return not plan.sketches and Family.FLOATING not in sums


def _size_in_memory(warehouse: Warehouse, batches: Sequence[Batch], most_bytes: int) -> int:
    """The bytes of all records, as footers say it: staging files have no dictionaries. Raises ``LeftToSpark`` for more
    than that.
    """
    size = 0
    for batch in batches:
        with opened_parquet(warehouse, file_of_batch(batch)) as parquet:
            groups = map(parquet.metadata.row_group, range(parquet.metadata.num_row_groups))
            chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
            types = {field.name: field.type for field in parquet.schema_arrow}
        size += sum(_bytes_in_memory(chunk, types.get(chunk.path_in_schema)) for chunk in chunks)
        if size > most_bytes:
            raise LeftToSpark(f"more than {most_bytes} bytes")
    return size


def _bytes_in_memory(chunk: pq.ColumnChunkMetaData, data_type: pa.DataType | None) -> int:
    """Of the values of a column, nulls included, which take nearly nothing in a file; None for one inside another."""
    stored, count = int(chunk.total_uncompressed_size), int(chunk.num_values)
    if data_type is None:
        return stored + _NESTED_BYTES * count
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return stored + _TEXT_BYTES * count
    return int(data_type.bit_width + 1) * count // 8  # and a bit that says whether it is null


def _keys(warehouse: Warehouse, batch: Batch, schema: TableSchema) -> pa.Table:
    with opened_parquet(warehouse, file_of_batch(batch)) as parquet:
        return parquet.read(list(schema.primary_key), use_threads=False)


def _partitions(schema: TableSchema, keys: pa.Table) -> Places | None:
    """The number of the partition of each record; None where the table has none."""
    if not schema.partition_keys:
        return None
    codes = np.zeros(len(keys), np.int64)
    for name in schema.partition_keys:
        values = keys[name].combine_chunks().dictionary_encode(null_encoding="encode")
        _, codes = numbered(codes * len(values.dictionary) + values.indices.to_numpy(zero_copy_only=False))
    if codes.max() >= MOST_PARTITIONS:
        raise LeftToSpark("records of many partitions")
    return codes


def _written(
    warehouse: Warehouse, table_id: str, folder: str, merge: _Merge, schema_id: int, go_on: Callable[[], None]
) -> tuple[Run, ...]:
    plan, runs = merge.plan, []
    with closing(ahead(merge.pieces())) as pieces:
        for place, rows in groupby(pieces, key=itemgetter(0)):
            text, inner = merge.partition_text(place), folder if merge.partitions is None else f"{folder}.{place:x}"
            groups = row_groups(_told(rows, go_on))
            written = write_run_file(warehouse, table_id, inner, plan, groups, MANY_ROWS)
            if written is not None:
                runs.append(Run(inner, schema_id, (written.file,), text, live_rows=written.live_rows))
    return tuple(runs)


def _told(pieces: Iterator[tuple[int, pa.Table]], go_on: Callable[[], None]) -> Iterator[pa.Table]:
    for _, rows in pieces:
        go_on()
        yield rows
