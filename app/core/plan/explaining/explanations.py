"""Rules in words, and why a record changed a column or did not (``T/rules`` and ``rows:simulate``).

Each kind of rule is one entry: its effect on a column in words, and the reason of one step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.core.functions.entries import FUNCTIONS
from app.core.plan.merging.merge_plan import MergePlan
from app.core.rules.accumulators import Sum, Union
from app.core.rules.lateness import Lateness
from app.core.rules.named_values import NamedValues
from app.core.rules.order import Order
from app.core.rules.register import Pick, Register
from app.core.rules.replays.replay import Replay
from app.core.rules.row import Liveness
from app.core.rules.rule import Rule
from app.core.rules.stepwise import Stepwise
from app.core.table.records import Record, RowKind
from app.core.table.schema import Column

NAMED_NULL = "named null: cleared"


@dataclass(frozen=True)
class Reason:
    """Why a record changes a column or does not, in words. ``late``: its sequence is older than that of the column's
    value; ``ignored``: it took part, and changed nothing.
    """

    words: str
    late: bool = False
    ignored: bool = False


@dataclass(frozen=True)
class Met:
    """How a register met a record: whether it takes it, and how its sequence compares with the one before, if it has
    any; ``late`` if it is older.
    """

    accepted: bool
    compared: str = ""
    late: bool = False


@dataclass(frozen=True)
class Step:
    """One record about to be folded: the state before it, and the record."""

    plan: MergePlan
    before: Mapping[str, Any] | None
    record: Record
    # The values that all columns of a register share are computed once.
    _of_registers: dict[int, Met] = field(default_factory=dict)

    def of_register(self, rule: Register) -> Met:
        """Return how the register meets the record."""
        known = self._of_registers.get(id(rule))
        if known is None:
            known = self._of_registers[id(rule)] = self._met(rule)
        return known

    def _met(self, rule: Register) -> Met:
        if self.before is None:
            return Met(accepted=True)
        before = self.before
        accepted = rule.newer_wins(before, rule.lift(self.record))
        seen = any(before.get(name) is not None for name in rule.names)
        if not (rule.order.fields and seen):
            return Met(accepted)
        later = accepted is (rule.pick is Pick.LATEST)
        return Met(accepted, _compared(rule, before, self.record, later=later), late=not later)


@dataclass(frozen=True)
class Explanation:
    """The words for one kind of rule: ``words`` describes a column's rule, ``reason`` a step."""

    words: Callable[[Any, Column], str]
    reason: Callable[[Any, Column, Step], Reason]


def order_words(order: Order) -> str:
    """Return an order in words."""
    fields = [field.column.name + (" descending" if field.descending else "") for field in order.fields]
    floors = sorted({f"cut to the {field.floor.lower()}" for field in order.fields if field.floor})
    flag = ["retracts before adds"] if order.flag else []
    return ", then ".join([*fields, *floors, *flag, "arrival"])


def depends_on_arrival(plan: MergePlan, rule: Rule) -> bool:
    """Return whether arrival decides more than ties. If groups remove rows, it does in every column: a removal deletes
    the values that arrived before it. It does also if records may be too late.
    """
    if plan.replay is not None and (plan.replay.listed or plan.replay.late):
        return True
    if isinstance(rule, (Sum, Union)):
        return False
    if isinstance(rule, NamedValues):
        return True
    if isinstance(rule, Register):
        return rule.order.by_arrival
    return isinstance(rule, Stepwise) and (rule.order.by_arrival or rule.late is not None)


def _group_words(group: tuple[str, ...]) -> str:
    return f" (records with null in {' and '.join(group)} are ignored)" if group else ""


def _register_words(rule: Register, column: Column) -> str:
    own_value = tuple(field.column.name for field in rule.order.fields) == (column.name,) and rule.part.skips_null
    if own_value and len(rule.columns) == 1:
        return f"the {'largest' if rule.pick is Pick.LATEST else 'smallest'} value{_group_words(rule.part.group)}"
    which = "latest" if rule.pick is Pick.LATEST else "first"
    if rule.part.skips_null:
        text = f"the {which} value that is not null, by {order_words(rule.order)}"
    elif rule.part.skips_unnamed and column.name not in rule.part.group:
        text = f"the value of the {which} record that names it, null included, by {order_words(rule.order)}"
    else:
        text = f"the value of the {which} record, null included, by {order_words(rule.order)}"
    return text + _group_words(rule.part.group) + _retract_words(rule, column)


def _retract_words(rule: Register, column: Column) -> str:
    if rule.clears and column.name not in rule.part.group:
        return "; a retract that is not older sets it to null"
    return ""


def _named_words(_rule: NamedValues, _column: Column) -> str:
    return f"the value of the latest record that names it, null included, by {order_words(Order())}"


def _named_reason(rule: NamedValues, column: Column, step: Step) -> Reason:
    apart = rule.part_of(column).reason(step.record)
    if apart is not None:
        return Reason(apart)
    return Reason(NAMED_NULL if step.record.values[column.name] is None else "taken")


def _shown(column: Column, value: Any) -> Any:
    return column.type.encoder(value)


def _sequence(values: Mapping[str, Any], order: Order) -> str:
    shown = [str(_shown(field.column, values.get(field.column.name))) for field in order.fields]
    return shown[0] if len(shown) == 1 else f"({', '.join(shown)})"


def _register_reason(rule: Register, column: Column, step: Step) -> Reason:
    record = step.record
    apart = rule.part.reason(record)
    if apart is not None:
        return Reason(apart)
    met = step.of_register(rule)
    outcome = _outcome(rule, column, record, accepted=met.accepted)
    words = f"sequence {met.compared}: {outcome}" if met.compared else outcome
    return Reason(words, met.late, ignored=not met.accepted)


def _compared(rule: Register, before: Mapping[str, Any], record: Record, *, later: bool) -> str:
    stored = rule.order_values(before)
    return f"{_sequence(record.values, rule.order)} {'>=' if later else '<'} {_sequence(stored, rule.order)}"


def _outcome(rule: Register, column: Column, record: Record, *, accepted: bool) -> str:
    if not accepted:
        return "ignored"
    cleared = not record.kind.add and rule.clears
    if cleared and column.name not in rule.kept_on_clear:
        return "set to null by the retract"
    return NAMED_NULL if rule.part.skips_unnamed and record.values[column.name] is None else "taken"


def _late(rule: Sum | Union | Stepwise, step: Step) -> bool:
    """Return whether the record is older than the state of its sequence group."""
    if not rule.part.group or step.before is None:
        return False
    register = step.plan.group_registers.get(rule.part.group)
    return register is not None and not register.newer_wins(step.before, register.lift(step.record))


def _accumulated(rule: Sum | Union | Stepwise, step: Step, verbs: tuple[str, str]) -> Reason:
    record = step.record
    apart = rule.part.reason(record)
    if apart is not None:
        return Reason(apart)
    if isinstance(rule, Stepwise) and rule.late is not None and step.before and rule.comes_late(step.before, record):
        return Reason(_too_late(rule.late), late=True, ignored=True)
    verb = verbs[0] if record.kind.add else verbs[1]
    return Reason(f"late but {verb}", late=True) if _late(rule, step) else Reason(verb)


def _too_late(late: Lateness) -> str:
    return f"{late.words}: ignored"


def _stepwise_words(rule: Stepwise, _column: Column) -> str:
    late = f"; records {_too_late(rule.late)}" if rule.late else ""
    words = rule.meaning or "folded value by value"
    return f"{words}, by {order_words(rule.order)}{_group_words(rule.part.group)}{late}"


EXPLANATIONS: Mapping[type[Rule], Explanation] = {
    Register: Explanation(_register_words, _register_reason),
    NamedValues: Explanation(_named_words, _named_reason),
    Sum: Explanation(
        lambda rule, _: f"{FUNCTIONS['sum'].meaning}{_group_words(rule.part.group)}; late records count too",
        lambda rule, _, step: _accumulated(rule, step, ("summed", "subtracted")),
    ),
    Union: Explanation(
        lambda rule, _: f"{rule.meaning or 'the union of all values'}{_group_words(rule.part.group)}",
        lambda rule, _, step: _accumulated(rule, step, ("joined", "taken back")),
    ),
    Stepwise: Explanation(
        _stepwise_words,
        lambda rule, _, step: _accumulated(rule, step, ("folded in its place", "taken back")),
    ),
}


def row_words(plan: MergePlan) -> str:
    """Return when the row exists."""
    replay = plan.replay
    late = f"; records {_too_late(replay.late)}" if replay is not None and replay.late else ""
    return _row_words(plan, replay) + late


def _row_words(plan: MergePlan, replay: Replay | None) -> str:
    if replay is not None and replay.listed:
        groups = " or ".join("(" + ", ".join(register.part.group) + ")" for register in replay.listed)
        return (
            f"a -D that the group {groups} accepts removes the row; a later add that is not older brings it back, and "
            "records of that group that are older than the removal change nothing of it"
        )
    if replay is not None or plan.row.removes_on_delete:
        return "a -D removes the row with all that came before it; a later add starts a new one"
    return _LIVENESS_WORDS[plan.row.liveness]


_CLOSED = Reason("older than the removal of the row: ignored", late=True, ignored=True)
_REMOVED = Reason("-D removes the row")
_REMOVED_BEFORE = Reason("-D removes what sorts before it", late=True)
_LIVENESS_WORDS = {
    Liveness.ALWAYS: "the row exists from its first record on",
    Liveness.KIND: "the row exists while its latest record is an add; -U and -D remove it",
    Liveness.ADD: "the row exists once an add was folded",
}


def column_words(plan: MergePlan, column: Column) -> str:
    """Return the rule of a column in words."""
    if column.name in plan.schema.primary_key:
        return "primary key"
    rule = plan.rule_of[column.name]
    return EXPLANATIONS[type(rule)].words(rule, column)


def _in_its_place(replay: Replay, before: Mapping[str, Any] | None, record: Record) -> Reason | None:
    """Return the outcome of a record that belongs before others, in a row that every -D removes in the middle of its
    history; None if the reasons of the columns differ.
    """
    if before is None or replay.listed or replay.order.by_arrival:
        return None
    row = replay.row(replay.combine(before, replay.lift(record)))
    if record.kind is not RowKind.DELETE:
        return None if row.holds(record.arrival) else _CLOSED
    if row.removed_at != record.arrival:
        return _CLOSED
    return _REMOVED_BEFORE if row.live else _REMOVED


def reasons(plan: MergePlan, before: Mapping[str, Any] | None, record: Record) -> dict[str, Reason]:
    """Return per value column why the record changes it or not, given the state row before it."""
    if plan.row.removes(record):
        return dict.fromkeys((column.name for column in plan.schema.value_columns), _REMOVED)
    replay = plan.replay
    inner: Mapping[str, Any] | None = before
    closed: set[tuple[str, ...]] = set()
    if replay is not None:
        if before is not None and replay.late is not None and replay.comes_late(before, record):
            too_late = Reason(_too_late(replay.late), late=True, ignored=True)
            return dict.fromkeys((column.name for column in replay.columns), too_late)
        whole = _in_its_place(replay, before, record)
        if whole is not None:
            return dict.fromkeys((column.name for column in replay.columns), whole)
        closed = replay.closed_groups(before, record) if before is not None else closed
        inner = replay.inner_state(before) if before is not None else None
        if replay.removes(inner, record):
            return dict.fromkeys((column.name for column in replay.columns), _REMOVED)
    step, by_name = Step(plan, inner, record), plan.schema.by_name
    return {
        name: _CLOSED if rule.part.group in closed else EXPLANATIONS[type(rule)].reason(rule, by_name[name], step)
        for name, rule in plan.rule_of.items()
    }
