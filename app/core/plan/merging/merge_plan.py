"""The merge plan: what a table's options come to, one rule per column, with the merge engine's name gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

from app.core.errors import ErrorCode, Invalid
from app.core.plan.checks.option_checks import check_options
from app.core.plan.checks.order_checks import PADDING_FLAG, PADDING_FLOORS
from app.core.plan.columns.column_defaults import defaults_of, row_kind_default
from app.core.plan.columns.late_horizon import with_horizon
from app.core.plan.merging.engines import ENGINES, RETRACTS, EnginePlan, Refusal, dropped_kinds
from app.core.plan.merging.whole_rows import WholeRow, whole_row
from app.core.rules.accumulators import Union
from app.core.rules.order import Floor, Order, OrderField
from app.core.rules.register import Register
from app.core.rules.replays.replay import Replay
from app.core.rules.row import Liveness, RowRule
from app.core.rules.rule import HiddenColumn, Rule, TotalBounds
from app.core.rules.widening import stored_type
from app.core.table.options.entries import MergeEngine, SortOrder
from app.core.table.options.parsed import FoldingOptions, TableOptions
from app.core.table.records import Record, RowKind
from app.core.table.schema import TableSchema
from app.core.types.datatype import DataType

_ANSWERS = 1  # the version of how answers are spelled


@dataclass(frozen=True)
class MergePlan:
    """How the records of one key become a row.

    ``dropped`` kinds are never staged; ``write_defaults`` replace null when a record is posted,
    ``read_defaults`` when a row is shown; ``row_kind_default`` is what ``row_kind_column`` is read as where
    it is null, and what is merged stays null.
    """

    schema: TableSchema
    rules: tuple[Rule, ...]
    order: Order
    row: RowRule
    dropped: frozenset[RowKind] = frozenset()
    refusals: tuple[Refusal, ...] = ()
    row_kind_column: str | None = None
    required_columns: tuple[str, ...] = ()
    write_defaults: Mapping[str, Any] = field(default_factory=dict)
    read_defaults: Mapping[str, Any] = field(default_factory=dict)
    row_kind_default: str | None = None

    @cached_property
    def omissible(self) -> frozenset[str]:
        """The NOT NULL columns that a record may leave out, once the row has them."""
        if not self.schema.absent_unchanged:
            return frozenset()
        needed = {*self.required_columns, self.row_kind_column}
        return frozenset(c.name for c in self.schema.value_columns if not c.nullable and c.name not in needed)

    @cached_property
    def omissible_in_retracts(self) -> frozenset[str]:
        """The NOT NULL columns that a retract may leave out: those that neither order it nor are taken back by it."""
        required = {*self.required_columns, self.row_kind_column, *(field.column.name for field in self.order.fields)}
        required |= {name for group in self.group_registers for name in group}
        required |= {column.name for rule in self.column_rules if rule.takes_back for column in rule.columns}
        return frozenset(c.name for c in self.schema.value_columns if not c.nullable and c.name not in required)

    @cached_property
    def hidden(self) -> tuple[HiddenColumn, ...]:
        """Every state column except the visible ones."""
        return (*(hidden for rule in self.rules for hidden in rule.hidden), *self.row.hidden)

    @cached_property
    def state_columns(self) -> tuple[tuple[str, DataType], ...]:
        """(name, type) of every column of a run after the token: keys, values, hidden."""
        visible = [(column.name, column.type) for column in (*self.schema.key_columns, *self.schema.value_columns)]
        return (*visible, *((hidden.name, hidden.type) for hidden in self.hidden))

    @cached_property
    def totals(self) -> tuple[TotalBounds, ...]:
        """The accumulating columns whose total can leave the column's type."""
        return tuple(bounds for rule in self.rules for bounds in rule.bounds)

    def refusal_of(self, record: Record) -> Refusal | None:
        """Return why a record can never be folded, None if it can."""
        for refusal in self.refusals:
            if refusal.refuses(record):
                return refusal
        for rule in self.faulting:
            fault = rule.fault(record)
            if fault is not None:
                [column, *_] = rule.columns
                return Refusal(
                    record.kind, f"column {column.name!r}: {fault}", "send another value", column=column.name
                )
        return None

    @cached_property
    def answer_form(self) -> str:
        """A digest of all that an image's bytes depend on, the state row excepted.

        These are the names and types of the columns, read defaults, when a row is live, what shows something else than
        its state, what says which row wins. Plans of one form answer a state row that means the same under both with
        the same bytes (decision 17).
        """
        columns = [(column.id, column.name, stored_type(column.type)) for column in self.schema.columns]
        by_name = self.schema.by_name
        defaults = {name: by_name[name].type.encoder(value) for name, value in self.read_defaults.items()}
        shown = [(rule.column.id, rule.called) for rule in self.unions]
        carries = [bounds.carry for bounds in self.totals]
        always = self.row.liveness is Liveness.ALWAYS
        ranked = [column.id for column in self.whole.columns] if self.whole else ()
        described = repr((_ANSWERS, columns, self.schema.primary_key, defaults, shown, carries, always, ranked))
        return blake2b(described.encode(), digest_size=8).hexdigest()

    @cached_property
    def whole(self) -> WholeRow | None:
        """The rule by which one state row of a key wins as a whole; None if a row combines several."""
        return whole_row(self.rules, self.row, self.schema.value_columns)

    @cached_property
    def unions(self) -> tuple[Union, ...]:
        """The rules that show something else than their state column, those of replayed rows included."""
        return tuple(rule for rule in self.column_rules if isinstance(rule, Union))

    @cached_property
    def replay(self) -> Replay | None:
        """The rule of a row that is replayed from its log; None in a plan of other rules."""
        return next((rule for rule in self.rules if isinstance(rule, Replay)), None)

    @cached_property
    def column_rules(self) -> tuple[Rule, ...]:
        """The rules that speak for columns; a replayed row's are those inside the replay."""
        return tuple(inner for rule in self.rules for inner in (rule.rules if isinstance(rule, Replay) else (rule,)))

    @cached_property
    def rule_of(self) -> Mapping[str, Rule]:
        """The rule of each value column by its name, one of ``column_rules``."""
        return {column.name: rule for rule in self.column_rules for column in rule.columns}

    @cached_property
    def group_registers(self) -> Mapping[tuple[str, ...], Register]:
        """The register that holds the ordering fields of a sequence group, by their names."""
        registers: dict[tuple[str, ...], Register] = {}
        for rule in self.column_rules:
            if isinstance(rule, Register) and rule.part.group and rule.kept_on_clear:
                registers.setdefault(rule.part.group, rule)
        return registers

    @cached_property
    def faulting(self) -> tuple[Rule, ...]:
        """The rules that look at single values (docs/semantics.md, A.7)."""
        return tuple(rule for rule in self.rules if type(rule).fault is not Rule.fault)


def compile_plan(schema: TableSchema) -> MergePlan:
    """Return the merge plan of a valid schema, compiled once and kept as long as the schema is.

    Raise ``Invalid`` with every fault of the options at once.
    """
    plan: MergePlan | None = schema.worked_out.get("plan")
    if plan is None:
        plan = schema.worked_out.setdefault("plan", _compile(schema))  # of two threads one wins
    return plan


def _compile(schema: TableSchema) -> MergePlan:
    faults = [*schema.parsed.faults, *check_options(schema)]
    if faults:
        raise Invalid("the table options are not valid", code=ErrorCode.INVALID_OPTIONS, violations=faults)
    return _with_doors(_folding_plan(schema, schema.parsed.folding), schema.parsed)


def _folding_plan(schema: TableSchema, options: FoldingOptions) -> MergePlan:
    """Return all of the plan that says what stored state means: of the options it can read only those that fold."""
    order = _row_order(schema, options)
    dropped = dropped_kinds(options)
    accepts_retracts = options.engine is not MergeEngine.FIRST_ROW and dropped != RETRACTS
    holds_removals = schema.remembers_removals and options.engine is MergeEngine.DEDUPLICATE and not order.by_arrival
    may_hide = accepts_retracts or holds_removals
    plan = ENGINES[options.engine](schema, options, order, may_hide)
    refused = {refusal.kind for refusal in plan.refusals if refusal.of_every_record}
    by_adds = plan.liveness is Liveness.ADD
    holds_retracts = schema.remembers_removals and by_adds
    never_retracts = not holds_retracts and (not may_hide or (by_adds and dropped | refused == RETRACTS))
    return MergePlan(
        schema,
        with_horizon(plan.rules, options["sequence.late-horizon"]),
        order,
        _row_rule(plan, order, never_retracts),
        dropped,
        tuple(refusal for refusal in plan.refusals if refusal.kind not in dropped),
        required_columns=_required(options),
    )


def _with_doors(plan: MergePlan, options: TableOptions) -> MergePlan:
    """Return the plan with the parts that stored state does not depend on: how records come in, how rows are shown,
    and how long hidden rows are kept.
    """
    defaults = defaults_of(plan.schema, options)
    at_write = options.engine in (MergeEngine.DEDUPLICATE, MergeEngine.FIRST_ROW)
    row = plan.row  # a limit counts only where late records could meet a hidden row
    remembers = row.liveness is not Liveness.ALWAYS and not row.forgets_hidden
    return replace(
        plan,
        row_kind_column=options["rowkind.field"],
        write_defaults=defaults if at_write else {},
        read_defaults={} if at_write else defaults,
        row_kind_default=None if at_write else row_kind_default(plan.schema, options),
        row=replace(row, retained=options["tombstone.time-retained"] if remembers else None),
    )


def _row_rule(plan: EnginePlan, order: Order, never_retracts: bool) -> RowRule:
    """Return the rule of the row."""
    # A log may hold removals of before ignore-delete was set.
    removes_inside = any(isinstance(rule, Replay) for rule in plan.rules)
    liveness = Liveness.ALWAYS if never_retracts and not removes_inside else plan.liveness
    by_latest = order.by_arrival and all(isinstance(rule, Register) for rule in plan.rules)
    return RowRule(liveness, plan.removes_on_delete, forgets_hidden=liveness is Liveness.KIND and by_latest)


def _row_order(schema: TableSchema, options: FoldingOptions) -> Order:
    """Sequence fields with their direction and padding; a key column never differs and is left out."""
    padding = options["sequence.auto-padding"]
    floors = [floor for step, floor in PADDING_FLOORS.items() if step in padding]
    floor = floors[0] if floors else None
    descending = options["sequence.field.sort-order"] is SortOrder.DESCENDING
    fields = tuple(
        OrderField(schema.by_name[name], descending, Floor(floor) if floor else None, integral=bool(padding))
        for name in options["sequence.field"]
        if name not in schema.primary_key
    )
    # With a floor, arrival decides between equal times before the flag could.
    return Order(fields, flag=PADDING_FLAG in padding and floor is None)


def _required(options: FoldingOptions) -> tuple[str, ...]:
    """Return columns that no record may leave null although they are nullable (padding cannot pad a null)."""
    return tuple(options["sequence.field"]) if options["sequence.auto-padding"] else ()
