"""A table's rules in words (``GET T/rules``)."""

from __future__ import annotations

from dataclasses import dataclass

from app.core.errors import Violation
from app.core.plan.explaining.explanations import column_words, depends_on_arrival, order_words, row_words
from app.core.plan.explaining.table_warnings import table_warnings
from app.core.plan.merging.engines import Refusal
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.table.records import RowKind
from app.core.table.schema import Column, TableSchema


@dataclass(frozen=True)
class KindRule:
    """The treatment of records of one row kind."""

    kind: str
    treatment: str  # accepted, ignored, refused
    reason: str | None = None
    fix: str | None = None


@dataclass(frozen=True)
class ColumnRule:
    """The rule of one column in words; ``depends_on_arrival``: arrival alone orders its records."""

    column: str
    rule: str
    default: str | None
    depends_on_arrival: bool


@dataclass(frozen=True)
class TableRules:
    """The treatment of records by a table, in words."""

    merge_engine: str
    row: str
    order: str
    kinds: list[KindRule]
    columns: list[ColumnRule]
    hidden_columns: list[str]
    warnings: list[Violation]


def table_rules(schema: TableSchema) -> TableRules:
    """Return the rules of a valid schema."""
    plan = compile_plan(schema)
    options = schema.parsed
    return TableRules(
        options.engine.value,
        row_words(plan),
        order_words(plan.order),
        [_kind_rule(plan, kind) for kind in RowKind],
        [_column_rule(plan, column) for column in schema.columns],
        [hidden.name for hidden in plan.hidden],
        table_warnings(schema),
    )


def _kind_rule(plan: MergePlan, kind: RowKind) -> KindRule:
    if kind in plan.dropped:
        return KindRule(kind.text, "ignored", "dropped before it is staged (ignore-delete or ignore-update-before)")
    refusals = [refusal for refusal in plan.refusals if refusal.kind is kind]
    whole = next((refusal for refusal in refusals if refusal.of_every_record), None)
    if whole is not None:
        return KindRule(kind.text, "refused", whole.reason, whole.fix)
    if refusals:
        reasons = "; ".join(sorted({f"{_of_which(refusal)}: {refusal.reason}" for refusal in refusals}))
        return KindRule(kind.text, "accepted", f"refused {reasons}", refusals[0].fix)
    return KindRule(kind.text, "accepted")


def _of_which(refusal: Refusal) -> str:
    """Return which records are refused, in words."""
    if not refusal.group:
        return f"naming {', '.join(refusal.naming)}"
    return f"with {', '.join(refusal.group)} set" + (f" and naming {refusal.naming[-1]}" if refusal.naming else "")


def _column_rule(plan: MergePlan, column: Column) -> ColumnRule:
    rule = plan.rule_of.get(column.name)
    arrival = rule is not None and depends_on_arrival(plan, rule)
    shown = plan.read_defaults.get(column.name)
    default = None if shown is None else f"a null is shown as {shown!r}"
    if column.name in plan.write_defaults:
        default = f"a null is stored as {plan.write_defaults[column.name]!r}"
    return ColumnRule(column.name, column_words(plan, column), default, arrival)
