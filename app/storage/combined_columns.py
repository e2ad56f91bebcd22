"""State rows of many keys combined by whole columns: what ``app.core.plan.fold`` says of the rows of one key, asked of
the rules with stand-ins (``app.core.plan.unknown_states``) and done by row numbers (docs/decisions/0045).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from app.core.plan.merge_plan import MergePlan
from app.core.plan.record_forms import NotByForm
from app.core.plan.unknown_states import (
    Added,
    Constant,
    EitherBits,
    HasBits,
    IsEqual,
    IsLess,
    IsNull,
    IsTrue,
    Member,
    Outcome,
    Question,
    Ranked,
    Side,
    Step,
    Stored,
    Term,
    combine_steps,
    compact_step,
)
from app.core.table.records import TOKEN_COLUMN
from app.storage.run_files import LeftToSpark, TokenShared, run_schema
from app.storage.tokens import Tokens

MOST_FOLDED_VALUES: Final = 1_000_000  # rows that whole columns cannot tell of, times their columns: 2 s of CPU
MOST_FORMS: Final = 1_000  # sets of answers that rows are told apart by: some milliseconds
_FOLDED_AT_ONCE = 100  # rows that become Python's objects together, while no other thread goes on

Places = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]


class Allowance:
    """How many values a compaction may still combine one by one."""

    def __init__(self, values: int) -> None:
        self._left = values

    def take(self, values: int) -> None:
        """Raises ``LeftToSpark`` once it is too many."""
        self._left -= values
        if self._left < 0:
            raise LeftToSpark("many rows have to be combined one by one")


@dataclass(frozen=True)
class ColumnSteps:
    """What is done with the state rows of a plan: how two of a key are combined, what is kept of one that is left, and
    which are combined with which.
    """

    plan: MergePlan
    combine: tuple[Step, ...]
    compact: tuple[Step, ...]
    pairs: Callable[[Places, Places], Iterator[tuple[Places, Places]]]

    @classmethod
    def of_compaction(cls, plan: MergePlan, now: int, *, oldest: bool) -> ColumnSteps:
        """Those of a plan that does not settle; ``now`` and ``oldest`` as in ``CompactionJob``. Runs are combined in
        turn, as Spark does it, for sums of binary fractions depend on it.
        """
        return cls(plan, combine_steps(plan), (compact_step(plan, now, oldest=oldest),), _in_turn)

    @classmethod
    def of_merge(cls, plan: MergePlan) -> ColumnSteps:
        """Those of records, each lifted by itself, of which one key may have very many."""
        return cls(plan, combine_steps(plan), (), _by_halves)


def _in_turn(starts: Places, counts: Places) -> Iterator[tuple[Places, Places]]:
    """The places of rows to be combined into the older of both: the first row of each key with each later one. The rows
    of a key are ``counts`` from ``starts`` on.
    """
    for place in range(1, int(counts.max(initial=1))):
        several = starts[counts > place]
        yield several, several + place


def _by_halves(starts: Places, counts: Places) -> Iterator[tuple[Places, Places]]:
    """As ``_in_turn``, neighbours first: a key with a thousand rows takes ten steps."""
    several = counts > 1
    starts, counts = starts[several], counts[several]
    places = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))
    number, last = places - np.repeat(starts, counts), np.repeat(counts, counts)
    stride = 1
    while stride < int(counts.max(initial=1)):
        older = places[(number % (2 * stride) == 0) & (number + stride < last)]
        yield older, older + stride
        stride *= 2


def combined(steps: ColumnSteps, tokens: Tokens, rows: pa.Table, allowance: Allowance) -> pa.Table:
    """The state rows that are kept, by token, of some that have ``tokens``: those of one key in the order of their
    ages, oldest first, and all rows of a key.

    Raises ``LeftToSpark`` and ``TokenShared``.
    """
    order = np.argsort(tokens, kind="stable")
    ordered = tokens[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(first)
    counts = np.diff(starts, append=len(order))
    _check_keys(steps.plan, rows, order[:-1][~first[1:]], order[1:][~first[1:]])
    states = _States(rows, order)
    for older, newer in steps.pairs(starts, counts):
        _Pairs(states, older, newer, steps.plan, allowance).take(steps.combine)
    for name in steps.plan.schema.primary_key:
        states.rows_of[name][starts] = order[starts + counts - 1]
    left = starts[_Pairs(states, starts, None, steps.plan, allowance).take(steps.compact)]
    return states.table(run_schema(steps.plan), ordered, left)


def _check_keys(plan: MergePlan, rows: pa.Table, before: Places, after: Places) -> None:
    """Raises ``TokenShared`` unless neighbours of one token have one key."""
    for name in plan.schema.primary_key if len(before) else ():
        values = whole(rows[name])
        ones, others = values.take(pa.array(before)), values.take(pa.array(after))
        same = pc.or_(_true(pc.equal(ones, others)), pc.and_(ones.is_null(), others.is_null()))
        if not pc.all(same).as_py():
            raise TokenShared(f"rows of one token differ in {name}")


class _Values:
    """The values of a column: those of all rows, and those that were made of them."""

    def __init__(self, values: pa.Array) -> None:
        self._pieces = [values]
        self._length = len(values)
        self._nulls: Truths | None = None
        self._constants: dict[Constant, int] = {}

    @property
    def type(self) -> pa.DataType:
        """What all of them are."""
        return self._pieces[0].type

    @property
    def array(self) -> pa.Array:
        """All of them, put together when somebody looks at them."""
        if len(self._pieces) > 1:
            self._pieces = [pa.concat_arrays(self._pieces)]
        return self._pieces[0]

    @property
    def nulls(self) -> Truths:
        """Which of them are null."""
        if self._nulls is None:
            self._nulls = np.asarray(self.array.is_null())
        return self._nulls

    def take(self, places: Places) -> pa.Array:
        """The values at ``places``."""
        return self.array.take(pa.array(places))

    def add(self, values: pa.Array) -> Places:
        """The places of further values."""
        start = self._length
        self._pieces.append(values)
        self._length += len(values)
        self._nulls = None
        return np.arange(start, self._length)

    def constant(self, value: Constant) -> int:
        """The place of a value that many rows have."""
        if value not in self._constants:
            [place] = self.add(pa.array([value], self.type))
            self._constants[value] = int(place)
        return self._constants[value]


class _States:
    """State rows by token and age: by column the place of the value of each, at first that of a stored row."""

    def __init__(self, rows: pa.Table, order: Places) -> None:
        names = [name for name in rows.schema.names if name != TOKEN_COLUMN]
        self.values = {name: _Values(whole(rows[name])) for name in names}
        self.rows_of = {name: order.copy() for name in names}

    def table(self, schema: pa.Schema, tokens: Tokens, places: Places) -> pa.Table:
        """Those at ``places``, as a run's file has them."""
        columns = [pa.array(tokens[places])]
        names = schema.names[1:]
        columns += [self.values[name].take(self.rows_of[name][places]) for name in names]
        return pa.table(columns, schema=schema)


class _Pairs:
    """State rows at the places ``older``, and where ``newer`` is given, the one that each of them is combined with."""

    def __init__(
        self, states: _States, older: Places, newer: Places | None, plan: MergePlan, allowance: Allowance
    ) -> None:
        self._states = states
        self._places = {Side.OLDER: older, Side.NEWER: older if newer is None else newer}
        self._plan = plan
        self._allowance = allowance

    def take(self, steps: Sequence[Step]) -> Truths:
        """Have what the ``steps`` make of the pairs in place of the older ones; which of these are left."""
        left = np.ones(len(self._older), dtype=bool)
        replaced: list[tuple[str, Places, Places]] = []
        for step in steps:
            for places, outcome in self._outcomes(step):
                if outcome is None:
                    left[places] = False
                elif isinstance(outcome, NotByForm):
                    replaced += self._one_by_one(step, places, left)
                else:
                    replaced += self._replaced(outcome, places)
        for name, older, values in replaced:  # when all steps have seen the rows as they were
            self._states.rows_of[name][older] = values
        return left

    @property
    def _older(self) -> Places:
        return self._places[Side.OLDER]

    def _outcomes(self, step: Step) -> Iterator[tuple[Places, Outcome | NotByForm | None]]:
        """What the step makes of which pairs."""
        waiting: list[tuple[tuple[tuple[Question, bool], ...], Places]] = [((), np.arange(len(self._older)))]
        forms = 0
        while waiting:
            answers, places = waiting.pop()
            outcome = step.outcome(answers)
            if isinstance(outcome, Question):
                yes = self._answered(outcome, places)
                parts = ((True, places[yes]), (False, places[~yes]))
                waiting += [((*answers, (outcome, answer)), part) for answer, part in parts if len(part)]
                continue
            forms += 1
            if forms > MOST_FORMS:
                raise LeftToSpark("rows have many forms")
            if len(places):
                yield places, outcome

    def _answered(self, question: Question, places: Places) -> Truths:
        match question:
            case IsNull(Stored(side, column)):
                nulls = self._states.values[column].nulls
                return np.asarray(nulls[self._rows(side, column, places)])
            case IsNull(term):
                return np.asarray(self._of(term, places).is_null())
            case IsTrue(term):
                values = self._of(term, places)
                return _truths(values if pa.types.is_boolean(values.type) else pc.not_equal(values, 0))
            case HasBits(term, bits):
                return np.asarray(_numbers(self._of(term, places)) & np.int64(bits), dtype=bool)
            case IsLess(left, right):
                return self._compared(pc.less, left, right, places)
            case IsEqual(left, right):
                return self._compared(pc.equal, left, right, places)

    def _compared(
        self, compare: Callable[..., pa.Array], left: Term | Constant, right: Term | Constant, places: Places
    ) -> Truths:
        sides = [one if isinstance(one, Constant) else self._of(one, places) for one in (left, right)]
        [data_type, *_] = [side.type for side in sides if isinstance(side, pa.Array)]
        return _truths(compare(*(pa.scalar(side, data_type) if isinstance(side, Constant) else side for side in sides)))

    def _rows(self, side: Side, column: str, places: Places) -> Places:
        """Where the values of a column are in the rows of a side."""
        return self._states.rows_of[column][self._places[side][places]]

    def _of(self, term: Term, places: Places) -> pa.Array:
        match term:
            case Stored(side, column):
                return self._states.values[column].take(self._rows(side, column, places))
            case Member(of, name):
                return pc.struct_field(self._of(of, places), name)
            case Ranked(of):
                return _ranks(self._of(of, places))
            case Added(left, right):
                return pc.add_checked(_wide(self._of(left, places)), _wide(self._of(right, places)))
            case EitherBits(left, right):
                return pc.bit_wise_or(self._of(left, places), self._of(right, places))

    def _replaced(self, outcome: Outcome, places: Places) -> Iterator[tuple[str, Places, Places]]:
        """The columns that change: of which of the older rows, and where their values are."""
        older = self._older[places]
        for name, value in outcome.items():
            values = self._states.values[name]
            match value:
                case Stored(Side.OLDER, column) if column == name:
                    continue
                case Stored(side, column) if column == name:
                    yield name, older, self._rows(side, column, places)
                case None | bool() | int() | Decimal():
                    yield name, older, np.full(len(older), values.constant(value))
                case _:
                    yield name, older, values.add(self._of(value, places).cast(values.type))

    def _one_by_one(self, step: Step, places: Places, left: Truths) -> Iterator[tuple[str, Places, Places]]:
        """As ``_replaced``, of rows that are combined as Python's objects; those that go are not ``left``."""
        self._allowance.take(len(places) * len(self._states.values))
        for some in np.split(places, range(_FOLDED_AT_ONCE, len(places), _FOLDED_AT_ONCE)):
            sides = [self._as_objects(side, some) for side in step.sides]
            states = [step.of(*of_key) for of_key in zip(*sides, strict=True)]
            stay = np.array([state is not None for state in states])
            left[some[~stay]] = False
            for name in {name: None for state in states for name in state or ()}:
                told = np.array([state is not None and name in state for state in states])
                found = [state[name] for state in states if state is not None and name in state]
                values = self._states.values[name]
                yield name, self._older[some[told]], values.add(pa.array(found, values.type))

    def _as_objects(self, side: Side, places: Places) -> Sequence[Mapping[str, Any]]:
        columns = _Objects(lambda name: self._states.values[name].take(self._rows(side, name, places)).to_pylist())
        return [_Row(columns, number) for number in range(len(places))]


class _Objects(dict[str, list[Any]]):
    """Columns as Python's objects: those that somebody has asked for."""

    def __init__(self, made: Callable[[str], list[Any]]) -> None:
        super().__init__()
        self._made = made

    def __missing__(self, name: str) -> list[Any]:
        self[name] = self._made(name)
        return self[name]


class _Row(Mapping[str, Any]):
    """A row of them. Its rules know which columns there are."""

    def __init__(self, columns: _Objects, number: int) -> None:
        self._columns = columns
        self._number = number

    def __getitem__(self, name: str) -> Any:
        return self._columns[name][self._number]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def whole(column: pa.ChunkedArray) -> pa.Array:
    """The values of a column in one piece. Raises ``LeftToSpark`` of texts that are too long together for that."""
    if column.num_chunks != 1:
        raise LeftToSpark("values that are too large together")
    return column.chunk(0)


def _true(values: pa.Array) -> pa.Array:
    return pc.fill_null(values, False)


def _truths(values: pa.Array) -> Truths:
    return np.asarray(_true(values))


def _numbers(words: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(words, 0), dtype=np.int64)


def _ranks(values: pa.Array) -> pa.Array:
    """As ``float_rank`` says it, in 64 bits: no other value has the rank of the largest number."""
    numbers = np.asarray(values.cast(pa.float64()).to_numpy(zero_copy_only=False))
    bits = numbers.view(np.int64)
    ranks = np.where(bits >= 0, bits, -(bits & np.int64(2**63 - 1)) - 1)
    return pa.array(np.where(np.isnan(numbers), np.int64(2**63 - 1), ranks))


def _wide(values: pa.Array) -> pa.Array:
    """Numbers in a type that holds the sum of any two of them."""
    data_type = values.type
    if pa.types.is_floating(data_type):
        return values
    if pa.types.is_decimal(data_type):
        return values.cast(pa.decimal256(data_type.precision + 1, data_type.scale))
    return values.cast(pa.decimal128(19, 0) if data_type == pa.int64() else pa.int64())
