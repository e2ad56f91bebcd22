"""Rows edited by hand: the record that sets the edited columns and leaves the others as they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from app.catalog.repository import Repository
from app.core.errors import ErrorCode, NotFound
from app.core.plan.merging.merge_plan import MergePlan
from app.core.plan.records.record_decoder import KIND_MEMBER
from app.core.rules.accumulators import Sum, Union
from app.core.rules.register import Register
from app.core.rules.stepwise import Stepwise
from app.core.table.history import Table
from app.core.table.keys import key_from_text, key_to_json
from app.core.table.records import RowKind
from app.services.rows.lookups import Consistency, get_row
from app.storage.images import Images

Row = Mapping[str, Any]


def row_now(repository: Repository, images: Images, table: Table, texts: Sequence[str]) -> tuple[Row, Row | None]:
    """Return the key with the values ``texts``, as JSON, and its row with staged records; None if there is no row.

    Raise ``Invalid`` for texts that are no key.
    """
    key = key_to_json(table.schema, key_from_text(table.schema, texts))
    try:
        return key, get_row(repository, images, table, texts, Consistency.LATEST).row
    except NotFound as error:
        if error.code is not ErrorCode.ROW_NOT_FOUND:
            raise
        return key, None


def record_of(plan: MergePlan, key: Row, touched: Row, kind: RowKind, row: Row | None) -> dict[str, Any]:
    """Return the record of ``kind`` that sets the columns ``touched`` of the row of ``key``, which is ``row`` now.

    The record repeats the present value of columns that it would otherwise clear, and of ordering columns, so that it
    is not older than the row.
    """
    repeated = () if row is None else repeated_columns(plan, touched, kind)
    values = {**{name: row[name] for name in repeated if row and row[name] is not None}, **touched, **key}
    record = {column.name: values[column.name] for column in plan.schema.columns if column.name in values}
    return record if kind is RowKind.INSERT or plan.row_kind_column else {KIND_MEMBER: kind.text, **record}


def repeated_columns(plan: MergePlan, touched: Collection[str], kind: RowKind) -> list[str]:
    """Return the columns whose present values a record that sets ``touched`` must repeat."""
    names = [column.name for column in plan.schema.value_columns if column.name not in touched]
    groups = {plan.rule_of[name].part.group for name in touched if name in plan.rule_of}
    ordering = {*(field.column.name for field in plan.order.fields), *(name for group in groups for name in group)}
    return [name for name in names if name in ordering or (kind.add and _cleared(plan, name, groups))]


def folds_in(plan: MergePlan, name: str) -> bool:
    """Return whether a record's value is combined with the column's value (as in a sum), and does not replace it."""
    return isinstance(plan.rule_of.get(name), Sum | Union | Stepwise)


def can_be_null(plan: MergePlan, name: str) -> bool:
    """Return whether null in a record clears the column; otherwise null changes nothing."""
    rule = plan.rule_of.get(name)
    return rule is None or not (rule.part.skips_null or rule.part.group == (name,))


def _cleared(plan: MergePlan, name: str, groups: Collection[tuple[str, ...]]) -> bool:
    """Return whether a record that sets columns of ``groups`` and leaves ``name`` out clears it."""
    rule = plan.rule_of[name]
    if plan.schema.absent_unchanged or rule.part.skips_null or not isinstance(rule, Register):
        return False
    return not rule.part.group or rule.part.group in groups


def ordering_now(plan: MergePlan, row: Row | None) -> dict[str, Any]:
    """Return the present values of the row's ordering columns: a delete with them is not older than the row."""
    fields = {name for group in plan.group_registers for name in group}
    fields |= {field.column.name for field in plan.order.fields}
    return {name: row[name] for name in sorted(fields) if row[name] is not None} if row else {}
