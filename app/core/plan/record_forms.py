"""What ``fold.lift`` makes of all records of one form: whose values each state column has, whatever these values are
(docs/decisions/0044).

The rules themselves say it, of a record in which each value is a stand-in that nobody can look at: this is no further
meaning of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from app.core.plan.merge_plan import MergePlan
from app.core.rules.rule import Rule, State
from app.core.table.records import ARRIVAL_COLUMN, Record, RowKind


@dataclass(frozen=True)
class Lift:
    """A part of ``fold.lift``; of the columns ``kept`` it never matters whether they are null."""

    of: Callable[[Record], State]
    kept: frozenset[str] = frozenset()


class NotByForm(Exception):
    """What records come to depends on more than their form."""


class NullMatters(Exception):
    """What records come to depends on whether ``column`` is null, which was not told."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.column = column


class ValueOf:
    """Stands for a record's value of ``column``. It can be kept, and nothing else."""

    __slots__ = ("column",)

    def __init__(self, column: str) -> None:
        self.column = column

    def _looked_at(self, *_: object) -> NoReturn:
        raise NotByForm(self.column)

    __eq__ = __lt__ = __gt__ = __le__ = __ge__ = __bool__ = __str__ = __format__ = __hash__ = _looked_at


@dataclass(frozen=True)
class RecordForm:
    """What is told of records: their kind, the columns that they name (None for all), and of some columns whether they
    are null.
    """

    kind: RowKind
    named: frozenset[str] | None
    nulls: Mapping[str, bool]


class _StandIns(Mapping[str, Any]):
    """The values of the records of a form."""

    def __init__(self, nulls: Mapping[str, bool], kept: frozenset[str]) -> None:
        self._nulls = nulls
        self._kept = kept

    def __getitem__(self, name: str) -> ValueOf | None:
        if name in self._kept:
            return ValueOf(name)
        if name not in self._nulls:
            raise NullMatters(name)
        return None if self._nulls[name] else ValueOf(name)

    def __iter__(self) -> Iterator[str]:
        raise NotByForm("all columns")

    def __len__(self) -> int:
        raise NotByForm("all columns")


def lifts_of(plan: MergePlan, touched: int) -> Sequence[Lift]:
    """``fold.lift`` of everything but the key, a part for each rule and one for the row itself, so that each part asks
    about few columns.
    """
    of_rules = [Lift(partial(_lift, plan, rule), rule.kept) for rule in plan.rules]
    return [*of_rules, Lift(lambda record: plan.row.lift(record, touched))]


def lifts_by_form(plan: MergePlan) -> bool:
    """Whether a record that adds a value to every column is lifted without a look at these; false of plans that keep
    logs of what they were told.
    """
    form = RecordForm(RowKind.INSERT, None, dict.fromkeys(plan.schema.by_name, False))
    try:
        for lift in lifts_of(plan, 0):
            state_of(lift, form)
    except NotByForm:
        return False
    return True


def _lift(plan: MergePlan, rule: Rule, record: Record) -> State:
    return rule.empty if plan.row.removes(record) else rule.lift(record)


def state_of(lift: Lift, form: RecordForm) -> State:
    """What ``lift`` makes of every record of the form: in place of a record's values are ``ValueOf``.

    Raises ``NullMatters``, and ``NotByForm`` where values are looked at.
    """
    arrival: Any = ValueOf(ARRIVAL_COLUMN)
    try:
        return lift.of(Record(form.kind, _StandIns(form.nulls, lift.kept), arrival, form.named))
    except (NullMatters, NotByForm):
        raise
    except Exception as error:  # whatever a rule does with a value that is none
        raise NotByForm(f"{type(error).__name__}: {error}") from error
