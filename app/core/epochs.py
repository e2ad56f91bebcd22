"""Schema changes and stored state: which old runs are read as they are, and how the others enter a new plan (§6.6,
§6.7).

A run is written under one schema. Renamed, added and dropped columns do not change what its state means. Where the
meaning changed (another function, another group, another type), the rows that the old plan shows enter the new plan as
its first records.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from app.core.accumulators import EXACT
from app.core.fold import lift, visible_row
from app.core.merge_plan import MergePlan, compile_plan
from app.core.options import TableOptions, parse_options
from app.core.records import Record, RowKind
from app.core.replay import Replay
from app.core.rules import State
from app.core.schema import TableSchema
from app.core.types import DataType

# Options that say how a row folds; the others say when merges run, how rows are shown, or what Paimon does.
FOLD_OPTIONS = (
    "merge-engine",
    "sequence.field.sort-order",
    "sequence.auto-padding",
    "ignore-delete",
    "ignore-update-before",
    "partial-update.remove-record-on-delete",
    "aggregation.remove-record-on-delete",
)
_SHOWN_ONLY = ("default-value",)


def same_fold(old: TableSchema, new: TableSchema) -> bool:
    """Whether the state that runs hold under ``old`` means the same under ``new``, for all columns that both have."""
    if old is new:
        return True
    if _row_signature(old) != _row_signature(new):
        return False
    before, after = _column_signatures(old), _column_signatures(new)
    same_columns = all(before[column] == after[column] for column in before.keys() & after.keys())
    return same_columns and _same_state(compile_plan(old), compile_plan(new))


def _same_state(old: MergePlan, new: MergePlan) -> bool:
    """Whether runs of ``old`` hold what ``new`` must know of the columns that both have.

    A column that comes or goes may change that for others: one that refuses retracts keeps all rows alive.
    """
    known = {column.id for column in old.schema.columns}
    needed = {
        hidden
        for rule in new.rules
        if not isinstance(rule, Replay) and any(column.id in known for column in rule.columns)
        for hidden in rule.hidden
    }
    return old.liveness is new.liveness and needed <= set(old.hidden)


def _ids(schema: TableSchema, names: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(schema.by_name[name].id for name in names)


def _row_signature(schema: TableSchema) -> tuple[Any, ...]:
    options, _ = parse_options(schema)
    removal = "partial-update.remove-record-on-sequence-group"
    return (
        *(options[key] for key in FOLD_OPTIONS),
        _ids(schema, options["sequence.field"]),
        frozenset(_ids(schema, options[removal])),
        _ids(schema, schema.primary_key),
    )


def _column_signatures(schema: TableSchema) -> dict[int, tuple[Any, ...]]:
    """Per column id: its type, its function with options, its group."""
    options, _ = parse_options(schema)
    return {
        column.id: (
            column.type.with_nullable(True),
            _function(options, column.name),
            _group(schema, options, column.name),
        )
        for column in schema.columns
    }


def _function(options: TableOptions, column: str) -> tuple[Any, ...]:
    own = {suffix: text for (named, suffix), text in options.fields.items() if named == column}
    own.setdefault("aggregate-function", options.default_function or "")
    return tuple(sorted((suffix, text) for suffix, text in own.items() if suffix not in _SHOWN_ONLY))


def _group(schema: TableSchema, options: TableOptions, column: str) -> tuple[int, ...]:
    for group in options.groups:
        if column in (*group.ordering, *group.protected):
            return _ids(schema, group.ordering)
    return ()


def renamed(state: Mapping[str, Any], old: TableSchema, new: TableSchema) -> State:
    """A state row of ``old`` under the column names of ``new``; columns that it lacks are null, hidden ones stay."""
    if old is new:
        return dict(state)
    names = {column.id: column.name for column in old.columns}
    hidden = {name: value for name, value in state.items() if name not in old.by_name}
    visible = {column.name: state.get(names[column.id]) if column.id in names else None for column in new.columns}
    return {**hidden, **visible}


def carried_over(state: Mapping[str, Any], old: MergePlan, new: MergePlan) -> State | None:
    """What a state row of ``old`` is under ``new``: the row it shows as a first record; None if it shows none."""
    row = visible_row(old, state)
    if row is None:
        return None
    types = {column.id: column.type for column in old.schema.columns}
    values = renamed(row, old.schema, new.schema)
    widened = {
        column.name: widen(values[column.name], types.get(column.id, column.type), column.type)
        for column in new.schema.columns
    }
    return lift(new, Record(RowKind.INSERT, widened, 0))


def widen(value: Any, old: DataType, new: DataType) -> Any:
    """A value of ``old`` as one of the wider type ``new``."""
    if value is None or (old.kind == new.kind and new.kind != "DECIMAL"):
        return value
    if new.kind == "DECIMAL":
        return EXACT.quantize(Decimal(value), Decimal(1).scaleb(-(new.scale or 0)))
    return float(value) if new.kind in ("FLOAT", "DOUBLE") else value
