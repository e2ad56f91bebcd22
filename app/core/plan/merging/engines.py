"""The merge engines: each compiles its options to one rule per column (docs/semantics.md, Combine records).

The compiled rules do not contain the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.core.functions.entries import AggregateFunction, FunctionUse
from app.core.plan.columns.column_functions import ColumnFunction, function_of
from app.core.rules.accumulators import Union
from app.core.rules.named_values import NamedValues
from app.core.rules.order import Order, OrderField
from app.core.rules.participation import UNCHANGED, Group, Names, Participation, kept_records
from app.core.rules.register import Pick, Register
from app.core.rules.replays.replay import Replay
from app.core.rules.row import Liveness
from app.core.rules.rule import Rule
from app.core.rules.stepwise import Stepwise
from app.core.table.named_columns import word_of
from app.core.table.options.entries import AbsentColumns, MergeEngine
from app.core.table.options.parsed import FoldingOptions, SequenceGroup
from app.core.table.records import Record, RowKind
from app.core.table.schema import Column, TableSchema

RETRACTS = frozenset({RowKind.UPDATE_BEFORE, RowKind.DELETE})


@dataclass(frozen=True)
class Refusal:
    """Records that the table can never fold (A.7): those of ``kind`` that name all of ``naming`` and,
    if ``group`` is set, have a value in one of its columns. ``column`` is the one whose value is at fault, if one is.
    """

    kind: RowKind
    reason: str
    fix: str
    group: tuple[str, ...] = ()
    naming: tuple[str, ...] = ()
    column: str | None = None

    @property
    def of_every_record(self) -> bool:
        """Whether all records of the kind are refused."""
        return not (self.group or self.naming)

    def refuses(self, record: Record) -> bool:
        """Return whether the record can never be folded."""
        touching = not self.group or any(record.values[name] is not None for name in self.group)
        return record.kind is self.kind and touching and all(record.names(name) for name in self.naming)


@dataclass(frozen=True)
class EnginePlan:
    """The compiled options of one engine: rules, when the row is live, refused records; ``removes_on_delete`` is for
    the rule of the row.
    """

    rules: tuple[Rule, ...]
    liveness: Liveness
    refusals: tuple[Refusal, ...] = ()
    removes_on_delete: bool = False


def dropped_kinds(options: FoldingOptions) -> frozenset[RowKind]:
    """Return the row kinds that are never staged."""
    if options["ignore-delete"]:
        return RETRACTS
    return frozenset({RowKind.UPDATE_BEFORE}) if options["ignore-update-before"] else frozenset()


def _deduplicate(schema: TableSchema, options: FoldingOptions, order: Order, may_hide: bool) -> EnginePlan:
    row = Register(schema.value_columns, order, keeps_kind=may_hide)
    return EnginePlan((row,), Liveness.KIND)


def _first_row(schema: TableSchema, options: FoldingOptions, order: Order, may_hide: bool) -> EnginePlan:
    row = Register(schema.value_columns, Order(), Pick.FIRST)
    refusals = _refuse_retracts("first-row keeps the first record and cannot take it back", "set ignore-delete = true")
    return EnginePlan((row,), Liveness.ALWAYS, refusals)


def _refuse_retracts(
    reason: str, fix: str, group: tuple[str, ...] = (), naming: tuple[str, ...] = ()
) -> tuple[Refusal, ...]:
    return tuple(Refusal(kind, f"{kind.text} record: {reason}", fix, group, naming) for kind in sorted(RETRACTS))


def _absent_unchanged(options: FoldingOptions) -> bool:
    """Return whether a column that a record does not name keeps its value."""
    return options["record.absent-columns"] is AbsentColumns.UNCHANGED


def _function_rule(
    column: Column, used: ColumnFunction, options: FoldingOptions, order: Order, group: Group | None
) -> tuple[Rule, bool]:
    """Return the rule of a function used on a column, and whether it takes retracts."""
    function = used.entry
    assert function is not None, "check_options refuses unknown functions"
    ignore_retract = options.of_field(column.name, "ignore-retract")
    reached = function.retracts and not ignore_retract and dropped_kinds(options) != RETRACTS
    comes = dropped_kinds(options) != RETRACTS
    settings = options.of_function(column.name)
    use = FunctionUse(column, order, group, reached, settings, comes, names=_absent_unchanged(options))
    rule = function.rule(use)
    if isinstance(rule, (Stepwise, Union)):
        rule = replace(rule, meaning=function.meaning, called=_called(function, column, options))
    return rule, function.retracts or ignore_retract


def _called(function: AggregateFunction, column: Column, options: FoldingOptions) -> tuple[Any, ...]:
    """Return the values that distinguish one use of a function from another: name, own options (nested fields by id),
    and how it rounds in its column.
    """
    ids = {field.name: field.id for field in (column.type.element.fields if column.type.element else ())}
    parsed = options.of_function(column.name)
    if function.name == "merge_map_with_keytime" and not parsed["ts-field"]:
        parsed["ts-field"] = next(reversed(ids))  # of other functions the last field means nothing
    settings = [
        (suffix, tuple(ids.get(n, n) for n in value) if isinstance(value, tuple) else ids.get(value, value))
        for suffix, value in parsed.items()
        if suffix != "given"
    ]
    return (function.name, *settings, *function.rounds(column.type))


def _partial_update(schema: TableSchema, options: FoldingOptions, order: Order, may_hide: bool) -> EnginePlan:
    rules: list[Rule] = []
    refusals: list[Refusal] = []
    for group in options.groups:
        group_rules, group_refusals = _group_rules(schema, options, group, order)
        rules += group_rules
        refusals += group_refusals
    free = [column for column in schema.value_columns if options.group_of(column.name) is None]
    rules += _free_columns(schema, free, options, order)
    removes = options["partial-update.remove-record-on-delete"]
    listed = _removal_groups(options, rules)
    if listed:
        replay = Replay(schema.value_columns, tuple(rules), order, listed, _absent_unchanged(options))
        return EnginePlan((replay,), Liveness.KIND, tuple(refusals))
    if not options.groups and not removes:
        fix = (
            "set ignore-delete = true, partial-update.remove-record-on-delete = true, or protect columns by "
            "fields.<g>.sequence-group"
        )
        refusals += _refuse_retracts("partial-update cannot take deletes", fix)
    return _removing(schema, rules, refusals, order, removes, logs_names=_absent_unchanged(options))


def _free_columns(schema: TableSchema, free: list[Column], options: FoldingOptions, order: Order) -> list[Rule]:
    """Return the columns in no group: of each the latest value that is not null, or the latest that a record names.

    One whose function is last_non_null_value skips a null that a record names.
    """
    skipping = [
        column for column in free if not _absent_unchanged(options) or function_of(schema, options, column.name)
    ]
    latest_not_null: list[Rule] = [
        Register((column,), order, part=kept_records(adds_only=True, not_null=column)) for column in skipping
    ]
    return [*latest_not_null, *_named_columns([column for column in free if column not in skipping], order)]


def _named_columns(columns: list[Column], order: Order) -> list[Rule]:
    if order.by_arrival:
        words = dict.fromkeys(word_of(column) for column in columns)
        return [NamedValues(tuple(column for column in columns if word_of(column) == word)) for word in words]
    return [Register((column,), order, part=_naming(column, order)) for column in columns]


def _naming(column: Column, order: Order) -> Participation:
    """Return the adds that name the column. The first field of an order needs no more than a value: a record that names
    it as null sorts before all others.
    """
    if order.fields and order.fields[0].column == column:
        return kept_records(adds_only=True, not_null=column)
    return kept_records(adds_only=True, named=Names((column,), UNCHANGED))


def _removal_groups(options: FoldingOptions, rules: list[Rule]) -> tuple[Register, ...]:
    """Return the registers of the groups that ``remove-record-on-sequence-group`` lists, by any of their ordering
    fields.
    """
    names = set(options["partial-update.remove-record-on-sequence-group"])
    groups = [
        rule for rule in rules if isinstance(rule, Register) and set(rule.part.group) <= {c.name for c in rule.columns}
    ]
    return tuple(register for register in groups if names & set(register.part.group))


def _removing(
    schema: TableSchema, rules: list[Rule], refusals: list[Refusal], order: Order, removes: bool, *, logs_names: bool
) -> EnginePlan:
    """Return the plan of a table in which, if ``removes``, a -D removes what comes before it: by arrival, or else in
    the log.
    """
    if removes and not order.by_arrival:
        replay = Replay(schema.value_columns, tuple(rules), order, logs_names=logs_names)
        return EnginePlan((replay,), Liveness.KIND, tuple(refusals))
    return EnginePlan(tuple(rules), Liveness.ADD, tuple(refusals), removes)


def _group_rules(
    schema: TableSchema, options: FoldingOptions, sequence: SequenceGroup, order: Order
) -> tuple[list[Rule], list[Refusal]]:
    """Return a sequence group: its ordering fields and plain columns, one rule per aggregated column."""
    group = Group(tuple(schema.by_name[name] for name in sequence.ordering), named=_absent_unchanged(options))
    group_order = Order(tuple(OrderField(column) for column in group.ordering)).then(order)
    followers = [schema.by_name[name] for name in sequence.followers]
    functions = {column.name: function_of(schema, options, column.name) for column in followers}
    plain = [column for column in followers if functions[column.name] is None]
    rules = _plain_columns(group, plain, group_order)
    refusals: list[Refusal] = []
    for column in followers:
        used = functions[column.name]
        if used is not None:
            rule, retracts = _function_rule(column, used, options, group_order, group)
            rules.append(rule)
            refusals += () if retracts else _no_retraction(column, used.called, options, sequence.ordering)
    return rules, refusals


def _plain_columns(group: Group, plain: list[Column], order: Order) -> list[Rule]:
    """Return the ordering fields of a group and its columns without a function: one register for all of them; or one
    for each column, that keeps the order it was set with, where records say what they name.
    """
    together = group.ordering if group.named else (*group.ordering, *plain)
    rules: list[Rule] = [Register(together, order, part=kept_records(group=group), clears=True)]
    for column in plain if group.named else ():
        named = Names((column,), UNCHANGED, or_retract=True)
        rules.append(Register((column,), order, part=kept_records(group=group, named=named), clears=True))
    return rules


def _no_retraction(
    column: Column, function: str, options: FoldingOptions, group: tuple[str, ...] = ()
) -> tuple[Refusal, ...]:
    reason = f"function {function} of column {column.name!r} does not support retraction"
    naming = (*group, column.name) if _absent_unchanged(options) else ()
    return _refuse_retracts(reason, f"set fields.{column.name}.ignore-retract = true", group, naming)


def _aggregation(schema: TableSchema, options: FoldingOptions, order: Order, may_hide: bool) -> EnginePlan:
    sequence = tuple(field.column for field in order.fields)
    rules: list[Rule] = _sequence_columns(sequence, options, order) if sequence else []
    refusals: list[Refusal] = []
    for column in schema.value_columns:
        used = function_of(schema, options, column.name)
        if used is not None:
            rule, retracts = _function_rule(column, used, options, order, None)
            rules.append(rule)
            refusals += () if retracts else _no_retraction(column, used.called, options)
    removes = options["aggregation.remove-record-on-delete"]
    if removes:
        refusals = [refusal for refusal in refusals if refusal.kind is not RowKind.DELETE]
    return _removing(schema, rules, refusals, order, removes, logs_names=_absent_unchanged(options))


def _sequence_columns(sequence: tuple[Column, ...], options: FoldingOptions, order: Order) -> list[Rule]:
    """Return the sequence fields: those of the latest record; but for the first field, which orders itself, each of the
    latest that names it, where records say.
    """
    if not _absent_unchanged(options):
        return [Register(sequence, order)]
    first, *others = sequence
    named = [Register((other,), order, part=kept_records(named=Names((other,), UNCHANGED))) for other in others]
    return [Register((first,), order), *named]


ENGINES: Mapping[MergeEngine, Callable[[TableSchema, FoldingOptions, Order, bool], EnginePlan]] = {
    MergeEngine.DEDUPLICATE: _deduplicate,
    MergeEngine.PARTIAL_UPDATE: _partial_update,
    MergeEngine.AGGREGATION: _aggregation,
    MergeEngine.FIRST_ROW: _first_row,
}
