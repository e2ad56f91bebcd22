"""Rules run with placeholders in place of values. So a rule that combines one pair of rows also says how to combine
whole columns (docs/kernel.md).

A rule that looks at a placeholder puts a ``Question``. The kernel answers it for each row, and runs the step once for
each set of answers. What comes out names the stored values (``Term``) that each column is made of.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, partial
from typing import Any, NoReturn, cast

from app.core.plan.merging.merge_plan import MergePlan
from app.core.plan.merging.terms import (
    Added,
    Answers,
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
from app.core.rules.float_sums import FloatSum
from app.core.rules.row import RESET_COLUMN
from app.core.rules.rule import Combine, Rule, State
from app.core.table.records import ARRIVAL_COLUMN, Record, RowKind
from app.core.types.datatype import DataType
from app.core.types.kinds import Family, Kind

# Families whose values sort alike in Python and in whole columns; FLOATING only by its rank.
ORDERED = frozenset(
    {
        Family.BOOLEAN,
        Family.INTEGER,
        Family.DECIMAL,
        Family.TEXT,
        Family.BINARY,
        Family.DATE,
        Family.TIME,
        Family.TIMESTAMP,
    }
)
_NUMBERS = frozenset({Family.INTEGER, Family.DECIMAL})
_REST = DataType(Kind.ARRAY, element=DataType(Kind.DOUBLE))


class Unanswered(Exception):
    """The result of a step depends on a question that was not answered."""

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self.question = question


class Placeholder:
    """A value that is not null, and not known. A rule may keep it, compare it, add it, negate it. Any other use raises
    ``NotByForm``.
    """

    __slots__ = ("_answers", "_type", "term")

    def __init__(self, term: Term, data_type: DataType, answers: Answers) -> None:
        self.term = term
        self._type = data_type
        self._answers = answers

    def _ask(self, question: Question) -> bool:
        if question not in self._answers:
            raise Unanswered(question)
        return self._answers[question]

    def _refused(self, *_: object) -> NoReturn:
        raise NotByForm(f"{self.term}: a value")

    __str__ = __repr__ = __format__ = __len__ = __iter__ = __contains__ = _refused
    __int__ = __float__ = __index__ = __abs__ = __call__ = _refused

    def __hash__(self) -> int:
        raise NotByForm("a hash")

    def _other(self, other: object) -> Term | Constant:
        """Return the term or constant that this one is compared with, if both sort alike."""
        if self._type.family not in ORDERED and not isinstance(self.term, Ranked):
            self._refused()
        if isinstance(other, Placeholder):
            alike = other._type == self._type and isinstance(other.term, Ranked) == isinstance(self.term, Ranked)
            return other.term if alike else self._refused()
        if self._type.family not in _NUMBERS or not isinstance(other, int | Decimal) or isinstance(other, bool):
            self._refused()
        return other

    def __eq__(self, other: object) -> bool:
        return other is not None and self._ask(IsEqual(self.term, self._other(other)))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: object) -> bool:
        return self._ask(IsLess(self.term, self._other(other)))

    def __gt__(self, other: object) -> bool:
        return self._ask(IsLess(self._other(other), self.term))

    def __ge__(self, other: object) -> bool:
        return not self < other

    def __le__(self, other: object) -> bool:
        return not self > other

    def __bool__(self) -> bool:
        if self._type.family not in {Family.BOOLEAN, Family.INTEGER}:
            self._refused()
        return self._ask(IsTrue(self.term))

    def __add__(self, other: object) -> Placeholder:
        if not isinstance(other, Placeholder) or other._type != self._type:
            self._refused()
        if self._type.family not in _NUMBERS:
            self._refused()
        return Placeholder(Added(self.term, other.term), self._type, self._answers)

    def __neg__(self) -> Placeholder:
        if self._type.family not in _NUMBERS:
            self._refused()
        return Placeholder(Negated(self.term), self._type, self._answers)

    def __rsub__(self, other: object) -> Placeholder:
        if self._type.family is not Family.FLOATING or other != 0:
            self._refused()
        return Placeholder(Negated(self.term), self._type, self._answers)

    def __and__(self, bits: object) -> _Bits:
        if not isinstance(bits, int) or self._type.family is not Family.INTEGER:
            self._refused()
        return _Bits(partial(self._ask, HasBits(self.term, bits)))

    def __or__(self, other: object) -> Placeholder:
        if self._type.family is not Family.INTEGER:
            self._refused()
        if isinstance(other, Placeholder) and other._type == self._type:
            return Placeholder(EitherBits(self.term, other.term), self._type, self._answers)
        return self if other == 0 else self._refused()

    __ror__ = __or__

    def get(self, name: str, default: object = None) -> Placeholder | None:
        """Return a member of a ROW."""
        if self._type.family is not Family.ROW or default is not None:
            self._refused()
        types = [field.type for field in self._type.fields if field.name == name]
        return _known(Member(self.term, name), types[0], self._answers) if types else None

    def __getitem__(self, name: str) -> Placeholder | None:
        return self.get(name)

    @property
    def ranked(self) -> Placeholder:
        """Its place in the order of FLOAT and DOUBLE, as ``float_rank`` asks for it."""
        return Placeholder(Ranked(self.term), self._type, self._answers)

    @property
    def finite(self) -> bool:
        """Whether it is finite, as ``float_sums.is_finite`` asks for it."""
        return self._ask(IsFinite(self.term))

    def summed(self, sums: Sequence[FloatSum], *, single: bool) -> FloatSum:
        """Return the sum of ``sums``, as ``float_sums.added`` asks for it. Raise ``NotByForm`` of one that is not
        short.
        """
        total = Summed(
            tuple((_term_of(number), None if rest is None else _term_of(rest)) for number, rest in sums), single
        )
        if not self._ask(IsShort(total)):
            self._refused()
        number: Any = Placeholder(total, self._type, self._answers)
        rest: Any = Placeholder(RestOf(total), _REST, self._answers)
        return FloatSum(number, rest)


class _Bits:
    """Bits of a word, of which one can only ask whether there are any."""

    __slots__ = ("_any",)

    def __init__(self, any_of_them: Callable[[], bool]) -> None:
        self._any = any_of_them

    def __bool__(self) -> bool:
        return self._any()

    def _refused(self, *_: object) -> NoReturn:
        raise NotByForm("bits of a word")

    __hash__ = __eq__ = __lt__ = __gt__ = __le__ = __ge__ = __int__ = __index__ = _refused


def _known(term: Term, data_type: DataType, answers: Answers) -> Placeholder | None:
    """Return the value of ``term``, once it is known whether it is null."""
    question = IsNull(term)
    if question not in answers:
        raise Unanswered(question)
    return None if answers[question] else Placeholder(term, data_type, answers)


class _State(Mapping[str, Any]):
    """A state row of which it is known what ``answers`` say."""

    def __init__(self, side: Side, step: Step, answers: Answers) -> None:
        self._side = side
        self._step = step
        self._answers = answers

    def __getitem__(self, name: str) -> Placeholder | None:
        data_type, term = self._step.types[name], Stored(self._side, name)
        if name in self._step.kept:
            return Placeholder(term, data_type, self._answers)
        return _known(term, data_type, self._answers)

    def __iter__(self) -> Iterator[str]:
        raise NotByForm("all columns")

    def __len__(self) -> int:
        raise NotByForm("all columns")


@dataclass(frozen=True)
class Step:
    """One step of a fold: a function of ``sides`` that returns the columns to replace, or None to drop the row.
    ``types`` are those of the state columns. The step never asks whether a column of ``kept`` is null.
    """

    function: Callable[..., State | None]
    types: Mapping[str, DataType]
    sides: tuple[Side, ...] = (Side.OLDER, Side.NEWER)
    kept: frozenset[str] = frozenset()

    @cached_property
    def _outcomes(self) -> dict[tuple[tuple[Question, bool], ...], Outcome | Question | NotByForm | None]:
        return {}

    def outcome(self, answers: tuple[tuple[Question, bool], ...]) -> Outcome | Question | NotByForm | None:
        """Return the outcome of the step for the rows with these ``answers`` (None: they are dropped), the next
        question to answer, or why whole columns cannot decide. Each is computed once.
        """
        if answers not in self._outcomes:
            self._outcomes[answers] = self._worked_out(dict(answers))
        return self._outcomes[answers]

    def _worked_out(self, answers: Answers) -> Outcome | Question | NotByForm | None:
        try:
            state = self.function(*(_State(side, self, answers) for side in self.sides))
            return None if state is None else {name: _stored(value) for name, value in state.items()}
        except Unanswered as error:
            return error.question
        except NotByForm as error:
            return error
        except Exception as error:  # any failure of a rule with a value that is none
            return NotByForm(f"{type(error).__name__}: {error}")


def _term_of(value: Any) -> Term:
    if not isinstance(value, Placeholder):
        raise NotByForm("a value among placeholders")
    return value.term


def _stored(value: Any) -> Term | Constant:
    if isinstance(value, Placeholder):
        if isinstance(value.term, Ranked):
            raise NotByForm("a rank")
        return value.term
    if value is None or isinstance(value, bool | int | Decimal):
        return value
    if isinstance(value, dict):
        return RowOf(tuple((name, _stored(member)) for name, member in value.items()))
    raise NotByForm("a value that is made of others")


def lift_steps(plan: MergePlan, rules: Sequence[Rule], kind: RowKind, named: frozenset[str] | None) -> tuple[Step, ...]:
    """Return a step for each of ``rules``: ``fold.lift`` of records of one kind that name the same columns.

    A step reads a record's columns and its arrival as the older side.
    """
    types = {column.name: column.type for column in plan.schema.columns} | {ARRIVAL_COLUMN: DataType(Kind.BIGINT)}
    return tuple(
        Step(partial(_lifted, plan, rule, kind, named), types, (Side.OLDER,), rule.kept | {ARRIVAL_COLUMN})
        for rule in rules
    )


def _lifted(
    plan: MergePlan, rule: Rule, kind: RowKind, named: frozenset[str] | None, values: Mapping[str, Any]
) -> State:
    record = Record(kind, values, values[ARRIVAL_COLUMN], named)
    return rule.empty if plan.row.removes(record) else rule.lift(record)


def row_lift_step(plan: MergePlan, kind: RowKind, now: int) -> Step:
    """Return the step that lifts the row's own columns from records of one kind, merged at ``now`` (epoch seconds)."""
    return Step(lambda values: plan.row.lift(Record(kind, values), now), {}, (Side.OLDER,))


def combine_steps(plan: MergePlan, rules: Sequence[Rule] | None = None) -> tuple[Step, ...]:
    """Return the steps of ``fold.combine`` for two state rows of a key, without the key.

    Each of ``rules`` (None: all) has a step, so that each asks little, and the row itself has one.
    """
    chosen = plan.rules if rules is None else rules
    parts = [step for rule in chosen for step in _combine_steps_of(plan, rule)]
    return (*parts, Step(plan.row.combine, dict(plan.state_columns)))


def _combine_steps_of(plan: MergePlan, rule: Rule) -> tuple[Step, ...]:
    types = dict(plan.state_columns)
    return tuple(Step(partial(_combined, plan, part), types, kept=rule.kept) for part in rule.parts)


def _combined(plan: MergePlan, part: Combine, older: Mapping[str, Any], newer: Mapping[str, Any]) -> State:
    return part([newer] if plan.row.ends(newer) else [older, newer])


def compact_step(plan: MergePlan, now: int, *, oldest: bool) -> Step:
    """Return the step that makes the state row a compaction stores, like ``fold.compacted`` for a plan that does not
    settle.
    """

    def kept(state: Mapping[str, Any]) -> State | None:
        replaced = plan.row.aged(state, now)
        aged: Mapping[str, Any] = ChainMap(replaced, cast("State", state))
        return replaced if not oldest or plan.row.stays(aged, now) else None

    return Step(kept, dict(plan.state_columns), (Side.OLDER,))


def settle_steps(plan: MergePlan) -> tuple[Step, ...]:
    """Return a step for each rule of which the oldest run stores something else: see ``Rule.settled``."""
    types = dict(plan.state_columns)
    rules = [rule for rule in plan.rules if type(rule).settled is not Rule.settled]
    return tuple(Step(rule.settled, types, (Side.OLDER,), rule.kept) for rule in rules)


def combines_by_columns(plan: MergePlan, rule: Rule) -> bool:
    """Return whether two states of ``rule`` whose columns all have a value are combined without a look at the values.

    False of rules with logs, and of most functions that make a value of several.
    """
    carries = frozenset(bounds.carry for bounds in plan.totals)
    return all(_has_outcome(step, carries) for step in _combine_steps_of(plan, rule))


def _has_outcome(step: Step, carries: frozenset[str]) -> bool:
    """Return whether ``step`` has an outcome for rows whose totals all are in range, where ``carries`` hold nothing."""
    answers: tuple[tuple[Question, bool], ...] = ()
    while True:
        outcome = step.outcome(answers)
        match outcome:
            case IsNull(Stored(_, column)):
                answer = column in carries
            case IsNull() | IsLess() | IsEqual():
                answer = False
            case IsTrue(Stored(_, column)):
                answer = column != RESET_COLUMN  # else nothing would be combined
            case IsTrue() | HasBits() | IsFinite() | IsShort():
                answer = True
            case _:
                return not isinstance(outcome, NotByForm)
        answers = (*answers, (outcome, answer))
