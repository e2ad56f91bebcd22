"""What rules make of state rows whatever their values are: asked with stand-ins in place of these, so that a rule that
combines one pair of rows says how to combine whole columns (docs/decisions/0045).

A rule that looks at a stand-in puts a ``Question``. Who runs the step answers it for each row, and the step is run once
for each set of answers; what comes out names the stored values (``Term``) that each column is made of.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import cached_property, partial
from typing import Any, NoReturn, cast

from app.core.plan.merge_plan import MergePlan
from app.core.plan.record_forms import NotByForm
from app.core.rules.row import RESET_COLUMN
from app.core.rules.rule import Combine, State
from app.core.types.datatype import DataType
from app.core.types.kinds import Family

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


class Side(StrEnum):
    """Which of two state rows of a key; where there is one, it is the older."""

    OLDER = "older"
    NEWER = "newer"


@dataclass(frozen=True)
class Stored:
    """What a state row stores in ``column``."""

    side: Side
    column: str


@dataclass(frozen=True)
class Member:
    """A member of a ROW."""

    of: Term
    name: str


@dataclass(frozen=True)
class Ranked:
    """The place of a FLOAT or DOUBLE in the order of its type, as ``float_rank`` says it."""

    of: Term


@dataclass(frozen=True)
class Added:
    """A sum of two numbers of one column's type, out of its range where it must be."""

    left: Term
    right: Term


@dataclass(frozen=True)
class EitherBits:
    """The bits of either of two words."""

    left: Term
    right: Term


Term = Stored | Member | Ranked | Added | EitherBits
Constant = bool | int | Decimal | None


@dataclass(frozen=True)
class IsNull:
    """Whether there is no value."""

    term: Term


@dataclass(frozen=True)
class IsTrue:
    """Whether a BOOLEAN is true, or a number is not 0."""

    term: Term


@dataclass(frozen=True)
class HasBits:
    """Whether a word has one of ``bits``."""

    term: Term
    bits: int


@dataclass(frozen=True)
class IsLess:
    """Whether the left value sorts before the right one."""

    left: Term | Constant
    right: Term | Constant


@dataclass(frozen=True)
class IsEqual:
    """Whether two values are one."""

    left: Term
    right: Term | Constant


Question = IsNull | IsTrue | HasBits | IsLess | IsEqual
Answers = Mapping[Question, bool]
Outcome = Mapping[str, Term | Constant]
"""What columns are made of; those that it does not name stay."""


class Unanswered(Exception):
    """What a step comes to depends on a question that was not answered."""

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self.question = question


class Unknown:
    """Stands for a value that is not null. It can be kept and asked what can be answered of whole columns; whoever
    does anything else with it raises ``NotByForm``.
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
    __int__ = __float__ = __index__ = __neg__ = __abs__ = __call__ = _refused

    def __hash__(self) -> int:
        raise NotByForm("a hash")

    def _other(self, other: object) -> Term | Constant:
        """What it is compared to, if both sort alike."""
        if self._type.family not in ORDERED and not isinstance(self.term, Ranked):
            self._refused()
        if isinstance(other, Unknown):
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

    def __add__(self, other: object) -> Unknown:
        if not isinstance(other, Unknown) or other._type != self._type:
            self._refused()
        if self._type.family not in {*_NUMBERS, Family.FLOATING}:
            self._refused()
        return Unknown(Added(self.term, other.term), self._type, self._answers)

    def __and__(self, bits: object) -> _Bits:
        if not isinstance(bits, int) or self._type.family is not Family.INTEGER:
            self._refused()
        return _Bits(partial(self._ask, HasBits(self.term, bits)))

    def __or__(self, other: object) -> Unknown:
        if self._type.family is not Family.INTEGER:
            self._refused()
        if isinstance(other, Unknown) and other._type == self._type:
            return Unknown(EitherBits(self.term, other.term), self._type, self._answers)
        return self if other == 0 else self._refused()

    __ror__ = __or__

    def get(self, name: str, default: object = None) -> Unknown | None:
        """A member of a ROW."""
        if self._type.family is not Family.ROW or default is not None:
            self._refused()
        types = [field.type for field in self._type.fields if field.name == name]
        return _known(Member(self.term, name), types[0], self._answers) if types else None

    def __getitem__(self, name: str) -> Unknown | None:
        return self.get(name)

    @property
    def ranked(self) -> Unknown:
        """Its place in the order of FLOAT and DOUBLE, as ``float_rank`` asks for it."""
        return Unknown(Ranked(self.term), self._type, self._answers)


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


def _known(term: Term, data_type: DataType, answers: Answers) -> Unknown | None:
    """The value of ``term``, once it was told whether it is null."""
    question = IsNull(term)
    if question not in answers:
        raise Unanswered(question)
    return None if answers[question] else Unknown(term, data_type, answers)


class _State(Mapping[str, Any]):
    """A state row of which it is known what ``answers`` say."""

    def __init__(self, side: Side, step: Step, answers: Answers) -> None:
        self._side = side
        self._step = step
        self._answers = answers

    def __getitem__(self, name: str) -> Unknown | None:
        data_type, term = self._step.types[name], Stored(self._side, name)
        if name in self._step.kept:
            return Unknown(term, data_type, self._answers)
        return _known(term, data_type, self._answers)

    def __iter__(self) -> Iterator[str]:
        raise NotByForm("all columns")

    def __len__(self) -> int:
        raise NotByForm("all columns")


@dataclass(frozen=True)
class Step:
    """A part of what becomes of state rows: a function of ``sides``, which gives the columns that it replaces, or None
    where the row goes. ``types`` are those of the state columns; of those ``kept`` it never matters whether they are
    null.
    """

    of: Callable[..., State | None]
    types: Mapping[str, DataType]
    sides: tuple[Side, ...] = (Side.OLDER, Side.NEWER)
    kept: frozenset[str] = frozenset()

    @cached_property
    def _outcomes(self) -> dict[tuple[tuple[Question, bool], ...], Outcome | Question | NotByForm | None]:
        return {}

    def outcome(self, answers: tuple[tuple[Question, bool], ...]) -> Outcome | Question | NotByForm | None:
        """What the step makes of all rows of which the ``answers`` are true (None: they go), the next question to be
        answered, or why whole columns cannot tell. Each is worked out once.
        """
        if answers not in self._outcomes:
            self._outcomes[answers] = self._worked_out(dict(answers))
        return self._outcomes[answers]

    def _worked_out(self, answers: Answers) -> Outcome | Question | NotByForm | None:
        try:
            state = self.of(*(_State(side, self, answers) for side in self.sides))
            return None if state is None else {name: _stored(value) for name, value in state.items()}
        except Unanswered as error:
            return error.question
        except NotByForm as error:
            return error
        except Exception as error:  # whatever a rule does with a value that is none
            return NotByForm(f"{type(error).__name__}: {error}")


def _stored(value: Any) -> Term | Constant:
    if isinstance(value, Unknown):
        if isinstance(value.term, Ranked):
            raise NotByForm("a rank")
        return value.term
    if value is None or isinstance(value, bool | int):
        return value
    raise NotByForm("a value that is made of others")


def combine_steps(plan: MergePlan) -> tuple[Step, ...]:
    """``fold.combine`` of two state rows of a key, of everything but the key: a part for each rule, so that each asks
    little, and one for the row itself.
    """
    types = dict(plan.state_columns)
    parts = [Step(partial(_combined, plan, part), types, kept=rule.kept) for rule in plan.rules for part in rule.parts]
    return (*parts, Step(plan.row.combine, types))


def _combined(plan: MergePlan, part: Combine, older: Mapping[str, Any], newer: Mapping[str, Any]) -> State:
    return part([newer] if plan.row.ends(newer) else [older, newer])


def compact_step(plan: MergePlan, now: int, *, oldest: bool) -> Step:
    """What a compaction keeps of a state row, as ``fold.compacted`` says it of a plan that does not settle."""

    def kept(state: Mapping[str, Any]) -> State | None:
        replaced = plan.row.aged(state, now)
        aged: Mapping[str, Any] = ChainMap(replaced, cast("State", state))
        return replaced if not oldest or plan.row.stays(aged, now) else None

    return Step(kept, dict(plan.state_columns), (Side.OLDER,))


def combines_by_form(plan: MergePlan) -> bool:
    """Whether two state rows whose columns all have a value are combined without a look at what only one row can tell;
    false of plans with logs, and of most functions that make a value of several.
    """
    carries = frozenset(bounds.carry for bounds in plan.totals)
    return all(_is_told(step, carries) for step in combine_steps(plan))


def _is_told(step: Step, carries: frozenset[str]) -> bool:
    """Whether it tells of rows whose totals all are in their ranges, where ``carries`` hold nothing."""
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
            case IsTrue() | HasBits():
                answer = True
            case _:
                return not isinstance(outcome, NotByForm)
        answers = (*answers, (outcome, answer))
