"""Runs of many records, made in this process of whole columns and written as Spark's merges write them
(docs/decisions/0044).

Each record becomes a state row by itself (``app.storage.lifted_columns``). Those whose key comes again are combined, by
whole columns as well (``app.storage.combined_columns``); where columns cannot tell, these records are folded one by
one, if they are few.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
_NULL_BYTES = 5  # of a value in memory that takes nearly nothing in a file

Places = npt.NDArray[np.int64]


def write_lifted_runs(
    warehouse: Warehouse,
    table_id: str,
    folder: str,
    plan: MergePlan,
    batches: Sequence[Batch],
    now: int,
    most_bytes: int,
) -> tuple[Run, ...]:
    """Write the state rows of the records of ``batches``, which were written under the plan's schema, at ``now`` (epoch
    seconds) as a run of one file below ``folder``, or one in each partition. They are durable after ``sync_runs``.

    Raises ``LeftToSpark`` where the records take more than ``most_bytes`` in memory, or a rule needs the values of
    more than a few; ``DamagedFile`` and ``TokenShared``; what else it raises, of values that Arrow or Python cannot
    hold, says nothing about the batches.
    """
    schema = plan.schema
    if any(column.type.family is Family.FLOATING for column in schema.key_columns):
        raise LeftToSpark("-0.0 and 0.0 are one key")
    in_order = sorted(batches, key=lambda batch: batch.number)
    _check_size(warehouse, in_order, most_bytes)
    tokens = np.concatenate([_tokens(warehouse, batch, schema) for batch in in_order])
    order = np.argsort(tokens, kind="stable")
    again = _come_again(tokens[order])
    if again.any() and not _folds_alike(plan):
        raise LeftToSpark("keys come several times")
    rows = pa.concat_tables([read_batch(warehouse, batch, schema) for batch in in_order]).combine_chunks()
    numbers = np.repeat([batch.number for batch in in_order], [batch.records for batch in in_order])
    merge = _Merge(plan, ColumnSteps.of_merge(plan), now, tokens, rows, numbers, Allowance(MOST_FOLDED_VALUES))
    parts = _parts(tokens[order], max(1, len(rows) * PART_BYTES // max(1, rows.nbytes)))
    with (
        memory_given_back(sum(batch.size_bytes for batch in in_order)),
        closing(ahead(merge.states(order[part], again[part]) for part in parts)) as states,
    ):
        return tuple(_write(warehouse, table_id, folder, plan, states, batches[0].schema_id))


@dataclass(frozen=True)
class _Merge:
    """What is merged: the ``rows`` of all batches in order of arrival, the token of each, and its batch's number."""

    plan: MergePlan
    steps: ColumnSteps
    now: int
    tokens: Tokens
    rows: pa.Table
    numbers: Places
    allowance: Allowance

    def states(self, places: Places, again: npt.NDArray[np.bool_]) -> pa.Table:
        """The state rows of the records at ``places``, all of each key, by token and arrival; which come ``again``."""
        states = self._lifted(places[~again])
        if not again.any():
            return states
        both = pa.concat_tables([states, self._folded(places[again])])
        return both.take(pa.array(np.argsort(both[TOKEN_COLUMN].to_numpy())))

    def _lifted(self, places: Places) -> pa.Table:
        return lifted(self.plan, self.tokens[places], self.rows.take(pa.array(places)), self.now)

    def _folded(self, places: Places) -> pa.Table:
        try:
            return combined(self.steps, self.tokens[places], self._lifted(places), self.allowance)
        except LeftToSpark:
            self.allowance.take(len(places) * len(self.plan.state_columns))
        return self._folded_one_by_one(places, self.rows.take(pa.array(places)))

    def _folded_one_by_one(self, places: Places, rows: pa.Table) -> pa.Table:
        if rows.nbytes > MOST_FOLDED_BYTES:
            raise LeftToSpark("records of keys that come several times are large")
        found = RecordsByToken(self.plan.schema)
        told = zip(self.tokens[places].tolist(), self.numbers[places].tolist(), rows.to_pylist(), strict=True)
        for token, number, row in told:
            found.add(token, staged_record(self.plan.schema, number, row))
        return state_table(self.plan, found.states(self.plan, self.now))


def _parts(ordered: Tokens, at_once: int) -> Iterator[slice]:
    """Parts of about so many records, which are by token; the records of a token are in one."""
    firsts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    start = 0
    while start < len(ordered):
        place = int(np.searchsorted(firsts, start + at_once))
        end = int(firsts[place]) if place < len(firsts) else len(ordered)
        yield slice(start, end)
        start = end


def _folds_alike(plan: MergePlan) -> bool:
    """Whether a fold of several records gives the very bytes that Spark's gives: unions of sketches do not, and sums of
    binary fractions are rounded at other steps.
    """
    sums = [rule.column.type.family for rule in plan.rules if isinstance(rule, Sum)]
    return not plan.sketches and Family.FLOATING not in sums


def _check_size(warehouse: Warehouse, batches: Sequence[Batch], most_bytes: int) -> None:
    """Raises ``LeftToSpark`` for more in memory than that, as footers say it: staging files have no dictionaries."""
    size = 0
    for batch in batches:
        with opened_parquet(warehouse, file_of_batch(batch)) as parquet:
            groups = map(parquet.metadata.row_group, range(parquet.metadata.num_row_groups))
            chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
        size += sum(chunk.total_uncompressed_size + _NULL_BYTES * chunk.num_values for chunk in chunks)
        if size > most_bytes:
            raise LeftToSpark(f"more than {most_bytes} bytes")


def _tokens(warehouse: Warehouse, batch: Batch, schema: TableSchema) -> Tokens:
    with opened_parquet(warehouse, file_of_batch(batch)) as parquet:
        return tokens_of(schema, parquet.read(list(schema.primary_key), use_threads=False))


def _come_again(ordered: Tokens) -> npt.NDArray[np.bool_]:
    """Which of the tokens, in ascending order, are there several times."""
    same, again = ordered[1:] == ordered[:-1], np.zeros(len(ordered), dtype=bool)
    again[1:] |= same
    again[:-1] |= same
    return again


def _write(
    warehouse: Warehouse, table_id: str, folder: str, plan: MergePlan, pieces: Iterator[pa.Table], schema_id: int
) -> Iterator[Run]:
    for place, (partition, rows) in enumerate(_partitions(plan.schema, pieces)):
        inner = folder if partition is None else f"{folder}.{place:x}"
        written = write_run_file(warehouse, table_id, inner, plan, row_groups(rows), MANY_ROWS)
        if written is not None:
            yield Run(inner, schema_id, (written.file,), partition, live_rows=written.live_rows)


def _partitions(schema: TableSchema, pieces: Iterator[pa.Table]) -> Iterator[tuple[str | None, Iterable[pa.Table]]]:
    """The rows of each partition with its text; all together, as they come, where the table has none."""
    if not schema.partition_keys:
        yield None, pieces
        return
    states = pa.concat_tables(pieces)
    codes = np.zeros(len(states), np.int64)
    for name in schema.partition_keys:
        values = states[name].combine_chunks().dictionary_encode(null_encoding="encode")
        _, codes = numbered(codes * len(values.dictionary) + values.indices.to_numpy(zero_copy_only=False))
    if codes.max() >= MOST_PARTITIONS:
        raise LeftToSpark("records of many partitions")
    for code in range(codes.max() + 1):
        rows = states.filter(pa.array(codes == code))
        [values] = rows.select(list(schema.partition_keys)).slice(0, 1).to_pylist()
        yield partition_text(schema, values), [rows]
