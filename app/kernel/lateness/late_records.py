"""Counts the late records of a merge by whole columns: compared with earlier records of their key, and with the order
columns of older runs.
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

from app.core.plan.merging.late_lanes import Lane, lanes_of
from app.core.plan.merging.merge_plan import compile_plan
from app.core.rules.order import OrderField
from app.core.rules.participation import Adds, Condition, InGroup, Names, NotNull, Participation
from app.core.rules.register import OrderPlace, Pick
from app.core.table.history import Run
from app.core.table.named_columns import bit_of, word_of
from app.core.table.records import ARRIVAL_COLUMN, KIND_COLUMN, POSITION_BITS
from app.core.table.schema import Column
from app.core.table.upkeep.late_records import STEPS, LateOfSender, LateRecords
from app.files.arrow import arrow_type
from app.files.layout import Warehouse
from app.files.named_files import file_of_run, opened_parquet
from app.files.reading import TokenRange, batches_of, may_hold, only_touched, tokens_in
from app.files.tokens import Tokens
from app.kernel.keys import grouped
from app.kernel.lateness.sequence_ranks import Amounts, Numbers, amounts_of, joined_ranks, ranks_of
from app.kernel.records import Records, record_pieces
from app.kernel.tasks import Task

Flags = npt.NDArray[np.bool_]


def late_records(warehouse: Warehouse, task: Task) -> tuple[LateOfSender, ...]:
    """Return the counts of late records in the task's batches, by lane and sender; ``runs`` are those below the merge.

    Raise ``DamagedFile``.
    """
    lanes = lanes_of(compile_plan(task.schema))
    totals: dict[tuple[int, str], LateRecords] = {}
    for piece in record_pieces(warehouse, task):
        records = _Records.of(warehouse, task, lanes, piece)
        for number, lane in enumerate(lanes):
            for sender, counts in records.late(lane).items():
                before = totals.get((number, sender))
                totals[number, sender] = counts if before is None else before + counts
    return tuple(LateOfSender(number, sender, counts) for (number, sender), counts in totals.items())


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
    """The records of some keys, those of a key in arrival order: the number of each one's key, and of its sender.

    ``states`` are columns of the rows that older runs have of ``state_keys``, by name and member.
    """

    columns: pa.Table
    keys: Numbers
    count: int
    senders: Sequence[str]
    sender: Numbers
    state_keys: Numbers
    states: Mapping[tuple[str, str | None], pa.Array]

    @classmethod
    def of(cls, warehouse: Warehouse, task: Task, lanes: Sequence[Lane], piece: Records) -> _Records:
        """Return the records of a piece, with the older rows of their keys."""
        groups = grouped(task.schema, piece.tokens, piece.rows)
        senders = sorted({batch.accepted_by for batch in task.batches})
        by_number = {batch.number: senders.index(batch.accepted_by) for batch in task.batches}
        numbers, of_record = np.unique(
            piece.rows.column(ARRIVAL_COLUMN).to_numpy() >> POSITION_BITS, return_inverse=True
        )
        sender = np.array([by_number[number] for number in numbers.tolist()], dtype=np.int64)[of_record]
        places = {place[1:]: place[0] for lane in lanes for place in _places(lane)}
        tokens, states = _states(warehouse, task, groups.key_tokens, places)
        state_keys = np.searchsorted(groups.key_tokens, tokens)
        return cls(piece.rows, groups.numbers, len(groups.starts), senders, sender, state_keys, states)

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
        older = np.zeros(self.count, dtype=np.int64)
        np.maximum.at(older, self.state_keys[seen], ranks[count:][seen])
        values = np.full(int(ranks.max(initial=0)) + 1, np.nan)
        values[ranks] = amounts_of(both[0], fields[0])
        return _Ordered(ranks[:count], older, values)

    def late(self, lane: Lane) -> Mapping[str, LateRecords]:
        """Return the late records of a lane by sender."""
        part = self.taking(lane.part)
        order = self.ordered(lane.places)
        places = np.flatnonzero(part)
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
            name: counter.of_sender(self.sender[late] == number, int(counts[number]), lane)
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

    def of_sender(self, whose: Flags, records: int, lane: Lane) -> LateRecords:
        """Return how late the records of one sender are: those that ``whose`` marks, of ``records`` that it sent."""

        def count(flags: Flags) -> int:
            return int(np.count_nonzero(flags & whose))

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
            steps=tuple(int(count) for count in of_step),
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


def _states(
    warehouse: Warehouse, task: Task, touched: Tokens, places: Mapping[tuple[str, str | None], OrderField]
) -> tuple[Tokens, Mapping[tuple[str, str | None], pa.Array]]:
    """Return the tokens of older rows of the keys, and their values at the ``places`` of orders."""
    parts: dict[tuple[str, str | None], list[pa.Array]] = {
        place: [pa.array([], arrow_type(field.column.type))] for place, field in places.items()
    }
    kept = [np.empty(0, dtype=np.int64)]
    tokens = TokenRange(int(touched[0]), int(touched[-1]))
    for run in task.runs:
        names = {column.id: column.name for column in task.schema_at(run.schema_id).columns}
        stored = {
            place: names.get(field.column.id, place[0]) if place[1] is None else place[0]
            for place, field in places.items()
        }
        present = _state_columns(warehouse, task.table_id, run)
        wanted = sorted({name for name in stored.values() if name in present})
        read = batches_of(warehouse, task.table_id, run, tokens, wanted, partial(may_hold, touched))
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
