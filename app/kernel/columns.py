"""Steps of a plan run over whole columns: each asks its questions, Arrow answers them for all rows at once.

Rows that whole columns cannot decide are computed one by one, step by step (docs/decisions/0046).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from app.core.plan.merging.placeholders import Step
from app.core.plan.merging.terms import (
    Added,
    Constant,
    EitherBits,
    HasBits,
    IsEqual,
    IsFinite,
    IsLess,
    IsNull,
    IsShort,
    IsTrue,
    Member,
    Negated,
    NotByForm,
    Outcome,
    Question,
    Ranked,
    RestOf,
    RowOf,
    Side,
    Stored,
    Summed,
    Term,
)
from app.files.tokens import Tokens
from app.kernel.float_sums import FloatSums, float_sums
from app.kernel.values import UnfoldableValue, values_array

MOST_FORMS: Final = 1_000  # sets of answers that rows are distinguished by: some milliseconds
# This many rows become Python objects together, while no other thread runs.
ROWS_AT_ONCE: Final = 1_000

Places = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]
Replaced = tuple[str, Places, Places]
"""A column, the rows in which it changes, and the places of their new values."""


class Values:
    """The values of a column: those of all rows, and new ones that steps have computed."""

    def __init__(self, values: pa.Array) -> None:
        self._pieces = [values]
        self._length = len(values)
        self._nulls: Truths | None = None
        self._constants: dict[tuple[type, Constant], int] = {}

    @property
    def type(self) -> pa.DataType:
        """The type of the values."""
        return self._pieces[0].type

    @property
    def array(self) -> pa.Array:
        """All values in one array."""
        if len(self._pieces) > 1:
            self._pieces = [pa.concat_arrays(self._pieces)]
        return self._pieces[0]

    @property
    def nulls(self) -> Truths:
        """Which of the values are null."""
        if self._nulls is None:
            self._nulls = np.asarray(self.array.is_null())
        return self._nulls

    def take(self, places: Places) -> pa.Array:
        """Return the values at ``places``."""
        return self.array.take(pa.array(places))

    def add(self, values: pa.Array) -> Places:
        """Append values; return their places."""
        start = self._length
        self._pieces.append(values)
        self._length += len(values)
        self._nulls = None
        return np.arange(start, self._length)

    def constant(self, value: Constant) -> int:
        """Return the place of a value that many rows have."""
        known = (type(value), value)
        if known not in self._constants:
            [place] = self.add(pa.array([value], self.type))
            self._constants[known] = int(place)
        return self._constants[known]


class States:
    """Rows by column: the distinct values, and for each row the place of its value."""

    def __init__(self, columns: Mapping[str, pa.Array], order: Places) -> None:
        self.values = {name: Values(array) for name, array in columns.items()}
        self.rows_of = {name: order.copy() for name in columns}

    def with_columns(self, types: Mapping[str, pa.DataType]) -> States:
        """Return the rows with exactly the columns of ``types``; columns that they lack are null."""
        made = States({}, np.empty(0, np.int64))
        for name, data_type in types.items():
            known = name in self.values
            array = self.values[name].array if known else pa.nulls(1, data_type)
            made.values[name] = Values(array)
            made.rows_of[name] = self.rows_of[name].copy() if known else np.zeros(self._count, np.int64)
        return made

    @property
    def _count(self) -> int:
        return len(next(iter(self.rows_of.values())))

    def table(self, schema: pa.Schema, tokens: Tokens, places: Places) -> pa.Table:
        """Return the rows at ``places`` with their ``tokens`` as the last column of ``schema``.

        Raise ``UnfoldableValue`` for totals that ``schema`` cannot hold.
        """
        columns = [
            _stored(field, self.values[field.name].take(self.rows_of[field.name][places]))
            for field in list(schema)[:-1]
        ]
        return pa.table([*columns, pa.array(tokens)], schema=schema)

    def objects(self, places: Places) -> list[Mapping[str, Any]]:
        """Return the rows at ``places`` as mappings; a column is decoded when one of them is read."""
        columns = _Objects(lambda name: self.values[name].take(self.rows_of[name][places]).to_pylist())
        return [_Row(columns, number) for number in range(len(places))]


class Pairs:
    """Rows of ``source`` at the places ``older``, each with the one at the same place of ``newer`` (None: alone).

    The outcome of a pair replaces columns of the row of ``target`` at its place in ``older``.
    """

    def __init__(self, source: States, target: States, older: Places, newer: Places | None = None) -> None:
        self._source = source
        self._target = target
        self._older = older
        self._places = {Side.OLDER: older, Side.NEWER: older if newer is None else newer}
        self._last_sums: tuple[Summed, Places, FloatSums] | None = None

    def take(self, steps: Sequence[Step]) -> Truths:
        """Run the ``steps``, each of which sees the original rows; return which pairs leave a row."""
        left = np.ones(len(self._older), dtype=bool)
        replaced: list[Replaced] = []
        for step in steps if len(self._older) else ():
            for places, outcome in self._outcomes(step):
                if outcome is None:
                    left[places] = False
                elif isinstance(outcome, NotByForm):
                    replaced += self._one_by_one(step, places, left)
                else:
                    replaced += self._replaced(outcome, places)
        for name, older, values in replaced:
            self._target.rows_of[name][older] = values
        return left

    def _outcomes(self, step: Step) -> Iterator[tuple[Places, Outcome | NotByForm | None]]:
        """Yield each outcome of the step with its pairs."""
        waiting: list[tuple[tuple[tuple[Question, bool], ...], Places]] = [((), np.arange(len(self._older)))]
        forms = 0
        while waiting:
            answers, places = waiting.pop()
            outcome = step.outcome(answers)
            if isinstance(outcome, Question):
                yes = self._answered(outcome, places)
                parts = ((True, places if yes.all() else places[yes]), (False, places[~yes]))
                waiting += [((*answers, (outcome, answer)), part) for answer, part in parts if len(part)]
                continue
            forms += 1
            if forms > MOST_FORMS:
                yield np.concatenate([places, *(part for _, part in waiting)]), NotByForm("rows have many forms")
                return
            yield places, outcome

    def _answered(self, question: Question, places: Places) -> Truths:
        match question:
            case IsNull(Stored(side, column)):
                nulls = self._source.values[column].nulls
                return np.asarray(nulls[self._rows(side, column, places)])
            case IsNull(term):
                return np.asarray(self._values_of(term, places).is_null())
            case IsTrue(term):
                values = self._values_of(term, places)
                return _truths(values if pa.types.is_boolean(values.type) else pc.not_equal(values, 0))
            case HasBits(term, bits):
                return np.asarray(_numbers(self._values_of(term, places)) & np.int64(bits), dtype=bool)
            case IsFinite(term):
                return np.asarray(pc.is_finite(self._values_of(term, places)))
            case IsShort(total):
                return self._sums(total, places).short
            case IsLess(left, right):
                return self._compared(pc.less, left, right, places)
            case IsEqual(left, right):
                return self._compared(pc.equal, left, right, places)

    def _compared(
        self, compare: Callable[..., pa.Array], left: Term | Constant, right: Term | Constant, places: Places
    ) -> Truths:
        sides = [side if isinstance(side, Constant) else self._values_of(side, places) for side in (left, right)]
        [data_type, *_] = [side.type for side in sides if isinstance(side, pa.Array)]
        return _truths(compare(*(pa.scalar(side, data_type) if isinstance(side, Constant) else side for side in sides)))

    def _rows(self, side: Side, column: str, places: Places) -> Places:
        """Return the places of a column's values in the rows of a side."""
        return self._source.rows_of[column][self._places[side][places]]

    def _values_of(self, term: Term, places: Places) -> pa.Array:
        match term:
            case Stored(side, column):
                return self._source.values[column].take(self._rows(side, column, places))
            case Member(inner, name):
                return pc.struct_field(self._values_of(inner, places), name)
            case Ranked(inner):
                return _ranks(self._values_of(inner, places))
            case Added(left, right):
                return pc.add_checked(_wide(self._values_of(left, places)), _wide(self._values_of(right, places)))
            case Negated(inner):
                values = _wide(self._values_of(inner, places))
                return pc.subtract_checked(pa.scalar(0, values.type), values)
            case EitherBits(left, right):
                return pc.bit_wise_or(self._values_of(left, places), self._values_of(right, places))
            case Summed():
                return self._sums(term, places).numbers
            case RestOf(total):
                return self._sums(total, places).rests
            case RowOf():
                raise TypeError("a ROW has the type of the column that it is stored in: see _made")

    def _sums(self, total: Summed, places: Places) -> FloatSums:
        """Return sums. The last ones are cached: for the same rows a question, a number and a rest need them."""
        if self._last_sums is None or self._last_sums[0] != total or self._last_sums[1] is not places:
            self._last_sums = (total, places, self._added(total, places))
        return self._last_sums[2]

    def _added(self, total: Summed, places: Places) -> FloatSums:
        parts = [
            (self._values_of(number, places), None if rest is None else self._values_of(rest, places))
            for number, rest in total.parts
        ]
        return float_sums(parts, single=total.single)

    def _made(self, value: Term | Constant, places: Places, data_type: pa.DataType) -> pa.Array:
        match value:
            case RowOf(members):
                by_name = dict(members)
                parts = [self._made(by_name.get(part.name), places, part.type) for part in data_type]
                return pa.StructArray.from_arrays(parts, fields=list(data_type))
            case None:
                return pa.nulls(len(places), data_type)
            case bool() | int() | Decimal():
                return pa.repeat(pa.scalar(value, data_type), len(places))
            case _:
                return self._values_of(value, places).cast(data_type)

    def _replaced(self, outcome: Outcome, places: Places) -> Iterator[Replaced]:
        older = self._older[places]
        for name, value in outcome.items():
            values = self._target.values[name]
            match value:
                case Stored(Side.OLDER, column) if column == name:
                    continue
                case Stored(side, column) if column == name and self._source is self._target:
                    yield name, older, self._rows(side, column, places)
                case None | bool() | int() | Decimal():
                    yield name, older, np.full(len(older), values.constant(value))
                case _:
                    yield name, older, values.add(self._made(value, places, values.type))

    def _one_by_one(self, step: Step, places: Places, left: Truths) -> Iterator[Replaced]:
        """Do as ``_replaced``, for rows as Python objects; rows that are dropped are not in ``left``."""
        for some in np.split(places, range(ROWS_AT_ONCE, len(places), ROWS_AT_ONCE)):
            sides = [self._source.objects(self._places[side][some]) for side in step.sides]
            states = [step.function(*of_row) for of_row in zip(*sides, strict=True)]
            stay = np.array([state is not None for state in states])
            left[some[~stay]] = False
            yield from added(self._target, self._older[some], states)


def added(target: States, rows: Places, states: Sequence[Mapping[str, Any] | None]) -> Iterator[Replaced]:
    """Append the values of ``states`` to the columns of ``target``, one state for each of ``rows``.

    Yield each column with its changed rows and the places of their new values. A row whose state is None does not
    change.
    """
    for name in {name: None for state in states for name in state or ()}:
        has = np.array([state is not None and name in state for state in states])
        present = [state[name] for state in states if state is not None and name in state]
        values = target.values[name]
        yield name, rows[has], values.add(values_array(name, present, values.type))


class _Objects(dict[str, list[Any]]):
    """Columns as Python objects, each decoded at its first use."""

    def __init__(self, made: Callable[[str], list[Any]]) -> None:
        super().__init__()
        self._made = made

    def __missing__(self, name: str) -> list[Any]:
        self[name] = self._made(name)
        return self[name]


class _Row(Mapping[str, Any]):
    """One row of ``_Objects``. Rules read only columns that exist."""

    __slots__ = ("_columns", "_number")

    def __init__(self, columns: _Objects, number: int) -> None:
        self._columns = columns
        self._number = number

    def __getitem__(self, name: str) -> Any:
        return self._columns[name][self._number]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def _stored(field: pa.Field, values: pa.Array) -> pa.Array:
    """Return values in the stored type. Raise ``UnfoldableValue`` for totals that it cannot hold."""
    if values.type == field.type:
        return values
    try:
        return values.cast(field.type)
    except pa.ArrowInvalid as error:
        raise UnfoldableValue(field.name, f"a total is out of range: {error}") from error


def _truths(values: pa.Array) -> Truths:
    return np.asarray(pc.fill_null(values, False))


def _numbers(words: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(words, 0), dtype=np.int64)


def _ranks(values: pa.Array) -> pa.Array:
    """Return the ranks of ``float_rank`` in 64 bits; no other value has the rank of the largest number."""
    numbers = np.asarray(values.cast(pa.float64()).to_numpy(zero_copy_only=False))
    bits = numbers.view(np.int64)
    ranks = np.where(bits >= 0, bits, -(bits & np.int64(2**63 - 1)) - 1)
    return pa.array(np.where(np.isnan(numbers), np.int64(2**63 - 1), ranks))


def _wide(values: pa.Array) -> pa.Array:
    """Return numbers in a type that can hold the sum of any two of them."""
    data_type = values.type
    if pa.types.is_floating(data_type):
        return values
    if pa.types.is_decimal(data_type):
        return values.cast(pa.decimal256(data_type.precision + 1, data_type.scale))
    return values.cast(pa.decimal128(19, 0) if data_type == pa.int64() else pa.int64())
