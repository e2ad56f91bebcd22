"""State rows as the rows that are shown, whole columns at a time: what ``finish`` says of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from app.core.plan.merging.merge_plan import MergePlan
from app.core.rules.row import LIVE_COLUMN
from app.core.rules.widening import same_type, widened
from app.core.table.schema import Column
from app.files.arrow import arrow_type
from app.storage.images.answers import live_rows, stored_values, unsettled_rows


def passing(batch: pa.RecordBatch, written: MergePlan) -> pa.Array:
    """Return which state rows can be shown without others: those with no total outside its column's type."""
    return pc.invert(unsettled_rows(batch, written))


def shown_batch(
    batch: pa.RecordBatch, written: MergePlan, shown: MergePlan, columns: Sequence[Column]
) -> tuple[pa.Array, pa.RecordBatch]:
    """Return which state rows are live, and ``columns`` of ``shown`` of those; they were written under a plan that
    means the same.
    """
    live = live_rows(batch, shown)
    kept = batch if live.true_count == len(batch) else batch.filter(live)
    before = {column.id: column for column in written.schema.columns}
    arrays = [_shown(kept, before.get(column.id), column, shown) for column in columns]
    return live, _batch(arrays, columns)


def rows_batch(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> pa.RecordBatch:
    """Return ``columns`` of finished rows."""
    arrays = [pa.array([row[column.name] for row in rows], arrow_type(column.type)) for column in columns]
    return _batch(arrays, columns)


def needed_columns(written: MergePlan, columns: Sequence[Column]) -> Sequence[str] | None:
    """Return the columns of a state row that are read to show ``columns``; None for all of them."""
    if written.totals:
        return None  # those outside their type are finished by the whole state row
    before = {column.id: column.name for column in written.schema.columns}
    hidden = {column.name for column in written.hidden} & {LIVE_COLUMN}
    return [*(before[column.id] for column in columns if column.id in before), *sorted(hidden)]


def shown_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema of the batches that ``shown_batch`` returns."""
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])


def _batch(arrays: Sequence[pa.Array], columns: Sequence[Column]) -> pa.RecordBatch:
    return pa.record_batch(list(arrays), schema=shown_schema(columns))


def _shown(batch: pa.RecordBatch, before: Column | None, column: Column, shown: MergePlan) -> pa.Array:
    to_type = arrow_type(column.type)
    default = shown.read_defaults.get(column.name)
    if before is None:
        return pa.array([default] * len(batch), to_type)
    unions = {rule.column.id: rule.shown for rule in shown.unions}
    values = stored_values(batch, before)
    if column.id in unions or not same_type(before.type, column.type):
        finish = unions.get(column.id, lambda value: value)
        stored = (widened(value, before.type, column.type) for value in values.to_pylist())
        finished = [None if value is None else finish(value) for value in stored]
        return pa.array([default if value is None else value for value in finished], to_type)
    values = values if values.type == to_type else values.cast(to_type)
    return values if default is None or not values.null_count else _filled(values, default, to_type)


def _filled(values: pa.Array, default: Any, to_type: pa.DataType) -> pa.Array:
    if not pa.types.is_nested(to_type):
        return pc.fill_null(values, pa.scalar(default, to_type))
    return pa.array([default if value is None else value for value in values.to_pylist()], to_type)
