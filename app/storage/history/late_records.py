"""Counts late records in the staging files of a merge, by whole columns. Only columns are read that order records, or
decide whether they take part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from app.core.plan.merging.late_lanes import Lane
from app.core.rules.order import OrderField
from app.core.rules.participation import Adds, Condition, InGroup, Names, NotNull, Participation
from app.core.rules.register import OrderPlace, Pick
from app.core.table.history import Batch, Run
from app.core.table.named_columns import bit_of, named_words, word_of
from app.core.table.records import KIND_COLUMN
from app.core.table.schema import Column, TableSchema
from app.core.table.upkeep.late_records import STEPS, LateRecords
from app.files.arrow import arrow_type
from app.files.layout import Warehouse
from app.files.named_files import file_of_batch, file_of_run, opened_parquet
from app.files.reading import TokenRange, batches_of, may_hold, only_touched, tokens_in
from app.files.tokens import Tokens
from app.storage.history.sequence_ranks import Amounts, Numbers, amounts_of, joined_ranks, ranks_of

Flags = npt.NDArray[np.bool_]
_TOKENS = 2**64


@dataclass(frozen=True)
class Merged:
    """A merge under the schema of its commit: its batches by number, the runs that it wrote, and the runs before it,
    oldest first. ``schemas`` are those of batches and runs.
    """

    table_id: str
    schema: TableSchema
    batches: Sequence[Batch]
    newer: Sequence[Run]
    older: Sequence[Run]
    schemas: Mapping[int, TableSchema]


@dataclass(frozen=True)
class LateInMerge:
    """The late records by lane and sender. With a ``share`` below 1, only that share of the keys was counted, and the
    rest is extrapolated.
    """

    share: float
    counts: Sequence[Mapping[str, LateRecords]]


def count_late(warehouse: Warehouse, merged: Merged, lanes: Sequence[Lane], most_rows: int) -> LateInMerge:
    """Return the counts of late records in the batches; at most about ``most_rows`` rows of older runs are read.

    Raise ``DamagedFile``.
    """
    touched = {run.partition for run in merged.newer}
    older = [run for run in merged.older if run.partition in touched]
    rows = sum(run.rows for run in older)
    span = _TOKENS if rows <= most_rows else _TOKENS * most_rows // rows
    records = _Records.of(warehouse, merged, lanes, TokenRange(last=TokenRange().first + span - 1), older)
    return LateInMerge(span / _TOKENS, [records.late(lane, _TOKENS / span) for lane in lanes])


@dataclass(frozen=True)
class _Ordered:
    """The place of each record in an order, from 1 on, and the highest that its key has in older runs, 0 for none;
    ``values`` are those of the first field by place.
    """

    ranks: Numbers
    older: Numbers
    values: Amounts

    def before(self, keys: Numbers, places: Numbers) -> tuple[Numbers, Numbers]:
        """Return for the records at ``places``, those of a key in arrival order, the highest rank that an earlier one
        of the same key has, and that older runs have; 0 for none.
        """
        order = np.argsort(keys[places], kind="stable")
        delays, ranks = keys[places][order], self.ranks[places][order]
        size = int(ranks.max(initial=0)) + 1
        highest = np.maximum.accumulate(delays * size + ranks) if len(delays) else delays
        earlier = np.zeros(len(delays), dtype=np.int64)
        same = delays[1:] == delays[:-1]
        earlier[1:][same] = highest[:-1][same] - delays[:-1][same] * size
        in_merge = np.empty_like(earlier)
        in_merge[order] = earlier
        return in_merge, self.older[keys[places]]


@dataclass(frozen=True)
class _Records:
    """The records of a merge, those of a key in arrival order: their columns, their keys as numbers, their senders;
    ``known`` says for each key whether it is counted, ``states`` are the rows of older runs by ``state_keys``.
    """

    schema: TableSchema
    columns: pa.Table
    keys: Numbers
    senders: Sequence[str]
    sender: Numbers
    known: Flags
    state_keys: Numbers
    states: Mapping[tuple[str, str | None], pa.Array]

    @classmethod
    def of(
        cls, warehouse: Warehouse, merged: Merged, lanes: Sequence[Lane], tokens: TokenRange, older: Sequence[Run]
    ) -> _Records:
        """Read the records of the merge, and the older rows of their keys."""
        schema = merged.schema
        columns = pa.concat_tables(
            _staged(warehouse, batch, merged.schemas[batch.schema_id], schema, _needed(schema, lanes))
            for batch in merged.batches
        ).combine_chunks()
        senders = sorted({batch.accepted_by for batch in merged.batches})
        sender = np.repeat(
            [senders.index(batch.accepted_by) for batch in merged.batches], [b.records for b in merged.batches]
        )
        run_keys, run_tokens = _written(warehouse, merged)
        keys, of_run = _numbered(schema, columns, run_keys)
        by_key = np.zeros(int(max(keys.max(initial=-1), of_run.max(initial=-1))) + 1, dtype=np.int64)
        by_key[of_run] = run_tokens
        touched = np.unique(by_key[by_key <= tokens.last])
        places = {place[1:]: place[0] for lane in lanes for place in _places(lane)}
        states = _states(warehouse, merged, older, tokens, touched, places)
        order = np.argsort(by_key, kind="stable")
        at = np.minimum(np.searchsorted(by_key[order], states[0]), max(0, len(order) - 1))
        return cls(schema, columns, keys, senders, sender, by_key <= tokens.last, order[at], states[1])

    def column(self, column: Column) -> pa.Array:
        """Return the values of a column."""
        return _whole(self.columns.column(column.name))

    @cached_property
    def retracts(self) -> Flags:
        """Which records are retracts."""
        kinds = self.columns.column(KIND_COLUMN).to_numpy()
        return np.asarray(kinds & 1, dtype=bool)

    def named(self, column: Column) -> Flags:
        """Return the records that name a column."""
        words = self.columns.column(word_of(column)).to_numpy()
        return np.asarray(words & np.int64(bit_of(column)), dtype=bool)

    def taking(self, part: Participation) -> Flags:
        """Return the records that take part in a rule."""
        met = np.ones(len(self.keys), dtype=bool)
        for condition in part.conditions:
            met &= _MET[type(condition)](self, condition)
        return met

    def ordered(self, places: Sequence[OrderPlace], *, downwards: bool = False) -> _Ordered:
        """Return the records by an order, whose places older runs have there."""
        count = len(self.keys)
        fields = [field for field, _, _ in places]
        both = [pa.concat_arrays([self.column(f.column), self.states[name, inner]]) for f, name, inner in places]
        seen = np.zeros(len(both[0]) - count, dtype=bool)
        for values in both:
            seen |= np.asarray(values.is_valid())[count:]
        ranks = joined_ranks([ranks_of(values, field) for values, field in zip(both, fields, strict=True)])
        ranks = ranks.max(initial=0) + 1 - ranks if downwards else ranks
        older = np.zeros(len(self.known), dtype=np.int64)
        np.maximum.at(older, self.state_keys[seen], ranks[count:][seen])
        values = np.full(int(ranks.max(initial=0)) + 1, np.nan)
        values[ranks] = amounts_of(both[0], fields[0])
        return _Ordered(ranks[:count], older, values)

    def late(self, lane: Lane, weight: float) -> Mapping[str, LateRecords]:
        """Return the late records of a lane by sender, each counted ``weight`` times."""
        part = self.taking(lane.part)
        order = self.ordered(lane.places)
        places = np.flatnonzero(part & self.known[self.keys])
        in_merge, older = order.before(self.keys, places)
        ranks = order.ranks[places]
        is_late = ranks < np.maximum(in_merge, older)
        late = places[is_late]
        counter = _Late(
            in_merge=(ranks < in_merge)[is_late],
            amounts=np.abs(order.values[np.maximum(in_merge, older)[is_late]] - order.values[ranks[is_late]]),
            idle=None if lane.kept is None else ~self._changing(lane, late),
        )
        counts = np.bincount(self.sender[part], minlength=len(self.senders))
        return {
            name: counter.of_sender(self.sender[late] == number, int(counts[number]), lane, weight)
            for number, name in enumerate(self.senders)
            if counts[number]
        }

    def _changing(self, lane: Lane, late: Numbers) -> Flags:
        """Return which of the late records at ``late`` still change a column of the lane."""
        changing = np.zeros(len(self.keys), dtype=bool)
        for rule in lane.counted or ():
            changing |= self.taking(rule.part)
        for register in lane.kept or ():
            first = register.pick is Pick.FIRST
            order = self.ordered(register.order_places, downwards=first)
            places = np.flatnonzero(self.taking(register.part))
            highest = np.maximum(*order.before(self.keys, places))
            ranks = order.ranks[places]
            changing[places] |= ranks > highest if first else ranks >= highest
        return changing[late]


@dataclass(frozen=True)
class _Late:
    """Records that are late: whether an earlier one of the merge was higher, by how much, and whether they changed
    nothing, if that is known.
    """

    in_merge: Flags
    amounts: Amounts
    idle: Flags | None

    def of_sender(self, whose: Flags, records: int, lane: Lane, weight: float) -> LateRecords:
        """Return how late the records of one sender are: those that ``whose`` marks, of ``records`` that it sent."""

        def count(flags: Flags) -> int:
            return round(int(np.count_nonzero(flags & whose)) * weight)

        steps = np.array(STEPS.get(lane.measure or "", ()))
        measured = ~np.isnan(self.amounts) if len(steps) else np.zeros(len(whose), dtype=bool)
        delays = self.amounts[measured & whose]
        of_step = np.bincount(np.searchsorted(steps, delays), minlength=len(steps) + 1) if len(steps) else ()
        return LateRecords(
            records=records,
            in_merge=count(self.in_merge),
            against_older=count(~self.in_merge),
            changed_nothing=None if self.idle is None else count(self.idle),
            too_late=0 if lane.bound is None else count(measured & (self.amounts > lane.bound)),
            unmeasured=count(~measured),
            largest=float(delays.max()) if len(delays) else None,
            steps=tuple(round(int(count) * weight) for count in of_step),
        )


_MET: Mapping[type[Condition], Callable[[_Records, Any], Flags]] = {
    Adds: lambda records, _: ~records.retracts,
    NotNull: lambda records, condition: np.asarray(records.column(condition.column).is_valid()),
    InGroup: lambda records, condition: np.logical_or.reduce(
        [np.asarray(records.column(name).is_valid()) for name in condition.ordering]
    ),
    Names: lambda records, condition: (
        np.logical_and.reduce([records.named(column) for column in condition.columns])
        | (records.retracts if condition.or_retract else False)
    ),
}


def _places(lane: Lane) -> Iterator[OrderPlace]:
    """Yield the columns of older rows that decide whether a record is late, or changes something."""
    yield from lane.places
    for register in lane.kept or ():
        yield from register.order_places


def _needed(schema: TableSchema, lanes: Sequence[Lane]) -> Sequence[Column]:
    """Return the columns of records that are read."""
    by_id = {column.id: column for column in schema.key_columns}
    for lane in lanes:
        rules = (*(lane.kept or ()), *(lane.counted or ()))
        columns = [field.column for field, _, _ in _places(lane)]
        parts = (lane.part, *(rule.part for rule in rules))
        columns += [column for part in parts for condition in part.conditions for column in _columns_of(condition)]
        by_id |= {column.id: column for column in columns}
    return list(by_id.values())


def _columns_of(condition: Condition) -> Sequence[Column]:
    if isinstance(condition, NotNull):
        return (condition.column,)
    return condition.ordering if isinstance(condition, InGroup) else ()


def _staged(
    warehouse: Warehouse, batch: Batch, written: TableSchema, schema: TableSchema, columns: Sequence[Column]
) -> pa.Table:
    """Return columns of a batch under the schema of the merge; columns that the batch's own schema lacks are null, and
    not named by any record.
    """
    before = {column.id: column.name for column in written.columns}
    words = [word for word in named_words(schema) if word in named_words(written)]
    names = [before[column.id] for column in columns if column.id in before]
    with opened_parquet(warehouse, file_of_batch(batch)) as parquet:
        read = parquet.read(columns=[*names, KIND_COLUMN, *words])
    arrays = [
        read.column(before[column.id]).cast(arrow_type(column.type))
        if column.id in before
        else pa.nulls(len(read), arrow_type(column.type))
        for column in columns
    ]
    named = [
        read.column(word) if word in words else pa.array(np.zeros(len(read), dtype=np.int64))
        for word in named_words(schema)
    ]
    return pa.table(
        [*arrays, read.column(KIND_COLUMN), *named],
        names=[*(c.name for c in columns), KIND_COLUMN, *named_words(schema)],
    )


def _written(warehouse: Warehouse, merged: Merged) -> tuple[pa.Table, Tokens]:
    """Return the keys of the merge and their tokens, as its own runs have them."""
    names = list(merged.schema.primary_key)
    fields = pa.schema([pa.field(column.name, arrow_type(column.type)) for column in merged.schema.key_columns])
    batches = [
        batch
        for run in merged.newer
        for batch in batches_of(warehouse, merged.table_id, run, TokenRange(), columns=names)
    ]
    tokens = [tokens_in(batch) for batch in batches]
    table = pa.Table.from_batches([batch.select(names).cast(fields) for batch in batches], fields)
    return table, np.concatenate(tokens) if tokens else np.empty(0, dtype=np.int64)


def _numbered(schema: TableSchema, records: pa.Table, rows: pa.Table) -> tuple[Numbers, Numbers]:
    """Return a number for each key, of records and of rows of runs."""
    numbers = np.zeros(len(records) + len(rows), dtype=np.int64)
    for name in schema.primary_key:
        both = pa.concat_arrays([_whole(records.column(name)), _whole(rows.column(name))])
        codes = both.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
        numbers = numbers * (int(codes.max(initial=0)) + 1) + codes
        numbers = np.unique(numbers, return_inverse=True)[1].reshape(-1)
    return numbers[: len(records)], numbers[len(records) :]


def _states(
    warehouse: Warehouse,
    merged: Merged,
    older: Sequence[Run],
    tokens: TokenRange,
    touched: Tokens,
    places: Mapping[tuple[str, str | None], OrderField],
) -> tuple[Tokens, Mapping[tuple[str, str | None], pa.Array]]:
    """Return the tokens of older rows of the keys, and their values at the ``places`` of orders."""
    parts: dict[tuple[str, str | None], list[pa.Array]] = {
        place: [pa.array([], arrow_type(field.column.type))] for place, field in places.items()
    }
    kept = [np.empty(0, dtype=np.int64)]
    for run in older if len(touched) else ():
        names = {column.id: column.name for column in merged.schemas[run.schema_id].columns}
        stored = {
            place: names.get(field.column.id, place[0]) if place[1] is None else place[0]
            for place, field in places.items()
        }
        present = _state_columns(warehouse, merged.table_id, run)
        wanted = sorted({name for name in stored.values() if name in present})
        read = batches_of(warehouse, merged.table_id, run, tokens, wanted, partial(may_hold, touched))
        for batch in (only_touched(one, touched) for one in read):
            kept.append(tokens_in(batch))
            for place, field in places.items():
                parts[place].append(_stored(batch, stored[place], place[1], arrow_type(field.column.type)))
    return np.concatenate(kept), {place: pa.concat_arrays(arrays) for place, arrays in parts.items()}


def _state_columns(warehouse: Warehouse, table_id: str, run: Run) -> set[str]:
    """Return the names of the columns in a run's files."""
    with opened_parquet(warehouse, file_of_run(table_id, run.id, run.files[0])) as parquet:
        return set(parquet.schema_arrow.names)


def _stored(batch: pa.RecordBatch, name: str, member: str | None, to_type: pa.DataType) -> pa.Array:
    """Return a column of older rows, or a member of it; null if the run has none."""
    place = batch.schema.get_field_index(name)
    if place < 0:
        return pa.nulls(len(batch), to_type)
    values = batch.column(place)
    if member is not None:
        if values.type.get_field_index(member) < 0:
            return pa.nulls(len(batch), to_type)
        values = pc.struct_field(values, member)
    return values.cast(to_type)


def _whole(values: pa.ChunkedArray) -> pa.Array:
    combined = values.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)
