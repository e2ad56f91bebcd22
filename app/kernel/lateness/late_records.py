"""Counts the late records of a merge by whole columns: compared with earlier records of their key, and with the order
columns of older runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from app.core.plan.merging.late_lanes import Lane, lanes_of
from app.core.plan.merging.merge_plan import compile_plan
from app.core.rules.participation import Adds, Condition, InGroup, Names, NotNull, Participation
from app.core.rules.register import OrderPlace, Pick
from app.core.table.named_columns import bit_of, word_of
from app.core.table.records import ARRIVAL_COLUMN, KIND_COLUMN, POSITION_BITS
from app.core.table.schema import Column
from app.core.table.upkeep.late_records import STEPS, LateOfSender, LateRecords
from app.files.layout import Warehouse
from app.kernel.keys import grouped
from app.kernel.lateness.older_orders import OlderOrders, Place
from app.kernel.lateness.sequence_ranks import Amounts, Numbers, amounts_of, joined_ranks, ranks_of, unit_of
from app.kernel.records import Records, record_pieces
from app.kernel.tasks import Task

Flags = npt.NDArray[np.bool_]


def late_records(warehouse: Warehouse, task: Task) -> tuple[LateOfSender, ...]:
    """Return the counts of late records in the task's batches, by lane and sender; ``runs`` are those below the merge.

    Raise ``DamagedFile``.
    """
    lanes = lanes_of(compile_plan(task.schema))
    totals: dict[tuple[int, str], LateRecords] = defaultdict(LateRecords)
    for piece in record_pieces(warehouse, task):
        records = _Records.from_piece(warehouse, task, lanes, piece)
        for number, lane in enumerate(lanes):
            for sender, counts in records.late(lane).items():
                totals[number, sender] += counts
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
        ordered_keys, ranks = keys[places][order], self.ranks[places][order]
        size = int(ranks.max(initial=0)) + 1
        highest = np.maximum.accumulate(ordered_keys * size + ranks) if len(ordered_keys) else ordered_keys
        earlier = np.zeros(len(ordered_keys), dtype=np.int64)
        same = ordered_keys[1:] == ordered_keys[:-1]
        earlier[1:][same] = highest[:-1][same] - ordered_keys[:-1][same] * size
        in_merge = np.empty_like(earlier)
        in_merge[order] = earlier
        return in_merge, self.older[keys[places]]


@dataclass(frozen=True)
class _Records:
    """The records of some keys, those of a key in arrival order: the number of each one's key, and of its sender.

    ``states`` are the ``OlderOrders`` of ``state_keys``.
    """

    columns: pa.Table
    keys: Numbers
    count: int
    senders: Sequence[str]
    sender: Numbers
    state_keys: Numbers
    states: Mapping[Place, pa.Array]

    @classmethod
    def from_piece(cls, warehouse: Warehouse, task: Task, lanes: Sequence[Lane], piece: Records) -> _Records:
        """Return the records of a piece, with the older rows of their keys."""
        groups = grouped(task.schema, piece.tokens, piece.rows)
        senders = sorted({batch.accepted_by for batch in task.batches})
        by_number = {batch.number: senders.index(batch.accepted_by) for batch in task.batches}
        numbers, of_record = np.unique(
            piece.rows.column(ARRIVAL_COLUMN).to_numpy() >> POSITION_BITS, return_inverse=True
        )
        sender = np.array([by_number[number] for number in numbers.tolist()], dtype=np.int64)[of_record]
        tokens, states = OlderOrders(warehouse, task, lanes).of_keys(groups.key_tokens)
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

    def ordered(self, places: Sequence[Sequence[OrderPlace]], *, downwards: bool = False) -> _Ordered:
        """Return the records by an order, whose places older runs have at each of ``places``."""
        count = len(self.keys)
        fields = [field for field, _, _ in places[0]]
        stored = [[self.states[name, inner] for _, name, inner in each] for each in zip(*places, strict=True)]
        both = [pa.concat_arrays([self.column(f.column), *each]) for f, each in zip(fields, stored, strict=True)]
        seen = np.zeros(len(both[0]) - count, dtype=bool)
        for values in both:
            seen |= np.asarray(values.is_valid())[count:]
        ranks = joined_ranks([ranks_of(values, field) for values, field in zip(both, fields, strict=True)])
        ranks = ranks.max(initial=0) + 1 - ranks if downwards else ranks
        older = np.zeros(self.count, dtype=np.int64)
        np.maximum.at(older, np.tile(self.state_keys, len(places))[seen], ranks[count:][seen])
        values = np.full(int(ranks.max(initial=0)) + 1, np.nan, dtype=np.longdouble)
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
        apart = np.abs(order.values[np.maximum(in_merge, older)[is_late]] - order.values[ranks[is_late]])
        counter = _Late(
            in_merge=(ranks < in_merge)[is_late],
            amounts=apart * unit_of(lane.order.fields[0]),
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
            order = self.ordered([register.order_places], downwards=first)
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


def _whole(values: pa.ChunkedArray) -> pa.Array:
    combined = values.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)
