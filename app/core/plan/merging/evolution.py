"""Schema changes and stored state: which old runs are read unchanged, and how others are converted to a new plan.

A run is written under one schema. Renamed, added, dropped and widened columns do not change the meaning of its state.
The state is then found by column id, and widened with its column. Another function, group or order does change the
meaning. The rows that the old plan shows are then the first records of the new plan.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Generic, TypeVar

from app.core.plan.merging.fold import combine_all, lift, visible_row
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.rules.accumulators import Sum
from app.core.rules.lateness import Lateness
from app.core.rules.order import Order, OrderField
from app.core.rules.participation import Condition, Participation
from app.core.rules.register import Pick, Register
from app.core.rules.replays.replay import Replay
from app.core.rules.row import LIVE_COLUMN
from app.core.rules.rule import Rule, State
from app.core.rules.step_function import StepFunction
from app.core.rules.stepwise import Stepwise
from app.core.rules.widening import same_type, widened
from app.core.table.records import Record, RowKind
from app.core.table.schema import Column, TableSchema
from app.core.types.datatype import DataType, field_ids

Stored = TypeVar("Stored")
Rows = TypeVar("Rows")

# Fields of a rule that only name it and do not change its result.
_NAMES = ("columns", "column", "meaning")


def same_fold(old: TableSchema, new: TableSchema) -> bool:
    """Return whether runs written under ``old`` have the same meaning under ``new``, for all columns that both have.

    Types may be wider. The compiled plans are compared, not the options, so that no option can be missed.
    """
    if old is new:
        return True
    if old.epoch != new.epoch:
        return False
    before, after = compile_plan(old), compile_plan(new)
    if not before.row.goes_on_as(after.row) or _row_meaning(before) != _row_meaning(after):
        return False
    rules, new_rules = _column_meanings(before), _column_meanings(after)
    same_columns = all(rules[column] == new_rules[column] for column in rules.keys() & new_rules.keys())
    return same_columns and _same_state(before, after) and _same_equality(before, after)


def shows_alike(old: TableSchema, new: TableSchema) -> bool:
    """Return whether a state row of ``old`` shows the same values under ``new``.

    It has the same meaning, and no sum was widened: a wider sum may show a total that did not fit before.
    """
    return same_state(old, new) and not _retotalled(compile_plan(old), compile_plan(new))


def same_state(old: TableSchema, new: TableSchema) -> bool:
    """Return whether runs written under ``old`` have the same meaning under ``new``, and need no added hidden column
    that marks live rows.
    """
    return same_fold(old, new) and not compile_plan(old).row.shown_by_adds(compile_plan(new).row)


def remembering(old: TableSchema, new: TableSchema) -> TableSchema:
    """Return ``new``, which follows ``old`` in a table with rows.

    Set ``remembers_removals`` if the options of ``new`` need none, but rows may hold removals or retracts that later
    records must still respect. Begin an epoch if the meaning of the state changes.
    """
    new = replace(new, epoch=old.epoch)
    remembers = replace(new, remembers_removals=True)
    if same_fold(old, new):
        return new
    if same_fold(old, remembers) and not same_fold(remembers, new):
        return remembers
    return replace(new, epoch=old.epoch + 1)


def same_types(old: TableSchema, new: TableSchema) -> bool:
    """Return whether the columns of both schemas have the same types: then state needs no conversion."""
    types = {column.id: column.type for column in old.columns}
    return all(same_type(types[column.id], column.type) for column in new.columns if column.id in types)


def _same_state(old: MergePlan, new: MergePlan) -> bool:
    """Return whether runs of ``old`` have the hidden columns that ``new`` needs for the columns of both.

    An added or dropped column may change them for others: one that refuses retracts keeps all rows alive.
    """
    known = {column.id for column in old.schema.columns}
    needed = {
        hidden.name
        for rule in new.rules
        if not isinstance(rule, Replay) and any(column.id in known for column in rule.columns)
        for hidden in rule.hidden
        if hidden.needed
    }
    return needed <= {hidden.name for hidden in old.hidden}


def _row_meaning(plan: MergePlan) -> tuple[Any, ...]:
    replays = [rule for rule in plan.rules if isinstance(rule, Replay)]
    return (
        _meaning(plan.order),
        tuple(_meaning(register.order) for rule in replays for register in rule.listed),
        len(replays),
        tuple(_meaning(rule.late) for rule in replays),
        _meaning(plan.schema.key_columns),
    )


def _column_meanings(plan: MergePlan) -> dict[int, Any]:
    """Return by column id the meaning of the column's rule, to compare."""
    return {column.id: _rule_meaning(rule) for rule in _inner_rules(plan) for column in rule.columns}


def _inner_rules(plan: MergePlan) -> list[Rule]:
    return [inner for rule in plan.rules for inner in (rule.rules if isinstance(rule, Replay) else (rule,))]


def _same_equality(before: MergePlan, after: MergePlan) -> bool:
    """Return whether elements that a function compares have all of their fields still; a new one is null in them."""
    types = {column.id: column.type for column in after.schema.columns}
    return all(
        field_ids(rule.column.type) <= field_ids(types[rule.column.id])
        for rule in _inner_rules(before)
        if isinstance(rule, Stepwise) and rule.function.compares and rule.column.id in types
    )


def _rule_meaning(rule: Rule) -> tuple[Any, ...]:
    """Return the type and the settings of a rule, columns by id; a function counts by its name, not its code."""
    settings = {
        field.name: getattr(rule, field.name)
        for field in fields(rule)  # type: ignore[arg-type]  # every rule is a dataclass
        if field.name not in _NAMES
    }
    return (type(rule), *((name, _meaning(value)) for name, value in settings.items() if not _is_code(value)))


def _is_code(value: Any) -> bool:
    return callable(value) or isinstance(value, StepFunction)


def _meaning(value: Any) -> Any:
    """Return a setting in a form to compare: columns by id, because names and widths do not count."""
    if isinstance(value, Column):
        return value.id
    if isinstance(value, OrderField):
        return (value.column.id, value.descending, value.floor, value.integral)
    if isinstance(value, Order):
        return (tuple(_meaning(field) for field in value.fields), value.flag)
    if isinstance(value, Lateness):
        return (value.column.id, value.horizon)
    if isinstance(value, (Participation, Condition)):
        return (type(value), *(_meaning(getattr(value, field.name)) for field in fields(value)))  # type: ignore[arg-type]  # every condition is a dataclass
    return tuple(_meaning(part) for part in value) if isinstance(value, tuple) else value


def renamed(values: Mapping[str, Any], old: TableSchema, new: TableSchema) -> State:
    """Return the values of a record or row of ``old`` by the names and in the types of ``new``; null in columns that
    ``old`` lacks.
    """
    before = {column.id: column for column in old.columns}
    return {
        column.name: widened(values.get(before[column.id].name), before[column.id].type, column.type)
        if column.id in before
        else None
        for column in new.columns
    }


def renamed_record(record: Record, old: TableSchema, new: TableSchema) -> Record:
    """Return a record of ``old`` by the names and in the types of ``new``. It names none of the columns that ``old``
    lacks.
    """
    named = None
    if new.absent_unchanged:
        ids = {column.id for column in old.columns if record.names(column.name)}
        named = frozenset(column.name for column in new.columns if column.id in ids)
    return Record(record.kind, renamed(record.values, old, new), record.arrival, named)


class RunSteps(ABC, Generic[Stored, Rows]):
    """The steps of ``combined_runs``. One implementation works on the state row of a key, another on whole columns."""

    @abstractmethod
    def read(self, written: MergePlan, run: Stored, plan: MergePlan) -> Rows:
        """Return a run that was written under ``written`` as state of ``plan``, where it has the same meaning."""

    @abstractmethod
    def combined(self, plan: MergePlan, rows: Sequence[Rows]) -> Rows:
        """Return the combination of states of ``plan``, given oldest first."""

    @abstractmethod
    def carried_over(self, old: MergePlan, new: MergePlan, rows: Rows) -> Rows:
        """Return the rows that a state of ``old`` shows, as first records of ``new``, which has another meaning."""


def combined_runs(plan: MergePlan, runs: Sequence[tuple[MergePlan, Stored]], steps: RunSteps[Stored, Rows]) -> Rows:
    """Return the combination of ``runs`` as one state of ``plan``.

    ``runs`` are neighbours, oldest first, at least one, each with the plan that it was written under. Those with the
    same meaning are combined under the youngest of their plans. The result enters the next plan as its first records.
    """
    carried: list[Rows] = []
    previous = plan
    for current, neighbours in _epochs(plan, runs):
        entered = [steps.carried_over(previous, current, rows) for rows in carried]
        read = [steps.read(written, run, current) for written, run in neighbours]
        carried, previous = [steps.combined(current, [*entered, *read])], current
    return carried[0] if previous is plan else steps.carried_over(previous, plan, carried[0])


def _epochs(
    plan: MergePlan, runs: Sequence[tuple[MergePlan, Stored]]
) -> list[tuple[MergePlan, list[tuple[MergePlan, Stored]]]]:
    """Return the groups of neighbouring runs with the same meaning, each with the plan that reads the group."""
    epochs: list[tuple[MergePlan, list[tuple[MergePlan, Stored]]]] = []
    for written, run in runs:
        reading = plan if same_fold(written.schema, plan.schema) else written
        if epochs and same_fold(epochs[-1][0].schema, reading.schema):
            epochs[-1] = (reading, [*epochs[-1][1], (written, run)])
        else:
            epochs.append((reading, [(written, run)]))
    return epochs


class _StateRow(RunSteps[Mapping[str, Any], Mapping[str, Any] | None]):
    """The steps over the state row of one key; None stands for no row."""

    def read(self, written: MergePlan, run: Mapping[str, Any], plan: MergePlan) -> Mapping[str, Any] | None:
        return run if written.schema is plan.schema else converted(run, written, plan)

    def combined(self, plan: MergePlan, rows: Sequence[Mapping[str, Any] | None]) -> Mapping[str, Any] | None:
        return combine_all(plan, [row for row in rows if row is not None])

    def carried_over(self, old: MergePlan, new: MergePlan, rows: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        return None if rows is None else carried_over(rows, old, new)


def combined_row(plan: MergePlan, stored: Sequence[tuple[MergePlan, Mapping[str, Any]]]) -> Mapping[str, Any] | None:
    """Return the combined state row of one key under ``plan``; None if no run has the key.

    ``stored`` are its state rows in the runs, oldest first, each with the plan that the run was written under.
    """
    return combined_runs(plan, stored, _StateRow()) if stored else None


def converted(state: Mapping[str, Any], old: MergePlan, new: MergePlan) -> State:
    """Return a state row of ``old`` by the names and types of ``new``, where it means the same (``same_fold``)."""
    sources = sources_of(old, new)
    values = {
        name: widened(state.get(sources[name][0]), sources[name][1], data_type) if name in sources else None
        for name, data_type in new.state_columns
    }
    if old.row.shown_by_adds(new.row):
        values[LIVE_COLUMN] = True
    for before, after in _retotalled(old, new):
        values.update(after.retotalled(before, state))
    for register, latest in _null_in(old, new):
        if not register.part.adds_only or new.row.is_live(values):
            values.update(register.read_null(values, latest))
    if not same_types(old.schema, new.schema):
        values.update((name, value) for rule in new.rules for name, value in rule.refolded(values).items())
    return values


def read_by_columns(old: MergePlan, new: MergePlan) -> bool:
    """Return whether each state column of ``new`` is an unchanged column of ``old`` (``sources_of``), or null."""
    return same_types(old.schema, new.schema) and not (_null_in(old, new) or old.row.shown_by_adds(new.row))


def _null_in(old: MergePlan, new: MergePlan) -> list[tuple[Register, Register | None]]:
    """Return the registers of added columns in which records of ``old`` count as null, and which store more than that
    null. Each comes with the register of ``old`` that holds the latest record in the same order; None if none does.
    """
    known = {column.id for column in old.schema.columns}
    registers = [rule for rule in new.rules if isinstance(rule, Register)]
    added = [
        register
        for register in registers
        if register.hidden
        and register.columns
        and register.counts_null
        and not register.keeps_kind  # the whole row: its state is found by name
        and not known & {c.id for c in register.columns}
    ]
    kept = [register for register in registers if known & {c.id for c in register.columns}]
    latest = [register for register in kept if register.pick is Pick.LATEST]
    return [(register, next((other for other in latest if _of_latest(other, register)), None)) for register in added]


def _of_latest(register: Register, other: Register) -> bool:
    """Return whether ``register`` holds the latest record, add or retract, in the order and group of ``other``."""
    part = register.part
    alike = register.order == other.order and part.group == other.part.group
    return alike and register.counts_null and not part.adds_only


def sources_of(old: MergePlan, new: MergePlan) -> dict[str, tuple[str, DataType]]:
    """Return per state column of ``new`` the name and type of the same column under ``old``.

    Visible columns are the same if their ids are. Hidden ones have the id in their name.
    """
    before = {column.id: (column.name, column.type) for column in old.schema.columns}
    hidden = {column.name: (column.name, column.type) for column in old.hidden}
    names = {column.name: before[column.id] for column in new.schema.columns if column.id in before}
    return names | {column.name: hidden[column.name] for column in new.hidden if column.name in hidden}


def _retotalled(old: MergePlan, new: MergePlan) -> list[tuple[Sum, Sum]]:
    """Return the sums of widened columns, before and after: a total outside the old type may fit the new one."""
    before = {rule.column.id: rule for rule in old.rules if isinstance(rule, Sum)}
    pairs = [(before[rule.column.id], rule) for rule in new.rules if isinstance(rule, Sum) and rule.column.id in before]
    return [(narrow, wide) for narrow, wide in pairs if not same_type(narrow.column.type, wide.column.type)]


def carried_over(state: Mapping[str, Any], old: MergePlan, new: MergePlan) -> State | None:
    """Return the row that a state row of ``old`` shows, as the first record of a state row of ``new``.

    A hidden row becomes a removal if removals hide older records under both plans (``removing``); else return None.
    """
    row = visible_row(old, state)
    if row is not None:
        return lift(new, renamed_record(Record(RowKind.INSERT, row, 0, _named(old, state)), old.schema, new.schema))
    replays = removing(old, new)
    removal = None if replays is None else replays[0].removal(state)
    if replays is None or removal is None:
        return None
    key = {name: state[source] for name, source in key_names(old, new)}
    entry = widened(removal, *(replay.entry_type for replay in replays))
    return {**key, **replays[1].removed(entry), **new.row.touched(None)}


def _named(plan: MergePlan, state: Mapping[str, Any]) -> frozenset[str]:
    """Return the columns that the records in ``state`` named, with those of the key.

    The row names them when it enters another plan as its first record.
    """
    return frozenset(plan.schema.primary_key).union(*(rule.named_columns(state) for rule in plan.rules))


def removing(old: MergePlan, new: MergePlan) -> tuple[Replay, Replay] | None:
    """Return the replay rules of both plans if a removal hides the same older records under either, else None.

    That is so if neither the order of records nor the groups that remove a row changed.
    """
    replays = [next((rule for rule in plan.rules if isinstance(rule, Replay)), None) for plan in (old, new)]
    before, after = replays
    if before is None or after is None or _meaning(old.order) != _meaning(new.order):
        return None
    listed = [tuple(_meaning(register.order) for register in replay.listed) for replay in (before, after)]
    return (before, after) if listed[0] == listed[1] else None


def key_names(old: MergePlan, new: MergePlan) -> list[tuple[str, str]]:
    """Return the pairs of names of the key columns: under ``new``, and under ``old``."""
    before = {column.id: column.name for column in old.schema.columns}
    return [(column.name, before[column.id]) for column in new.schema.key_columns]
