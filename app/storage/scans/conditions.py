"""Conditions on rows that are shown, a column at a time, and on the statistics of row groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from app.core.plan.merging.merge_plan import MergePlan
from app.core.plan.records.row_filters import Condition, Operator
from app.core.rules.widening import same_type
from app.core.types.kinds import Family
from app.files.arrow import arrow_type
from app.files.reading import Wanted


def matching(batch: pa.RecordBatch, conditions: Sequence[Condition]) -> pa.Array:
    """Return which rows meet all ``conditions``, of which there is one at least; null for no."""
    mask = None
    for condition in conditions:
        met = _MEANINGS[condition.operator](batch.column(condition.column.name), condition)
        mask = met if mask is None else pc.and_kleene(mask, met)
    return mask


def _scalar(condition: Condition) -> pa.Scalar:
    return pa.scalar(condition.value, arrow_type(condition.column.type))


def _compared(compare: Callable[[Any, Any], Any]) -> Callable[[pa.Array, Condition], pa.Array]:
    return lambda values, condition: compare(values, _scalar(condition))


def _in(values: pa.Array, condition: Condition) -> pa.Array:
    wanted = pa.array(condition.value, arrow_type(condition.column.type))
    if condition.column.type.family is Family.FLOATING:
        # pyarrow finds equal bits, but eq is the number's: 0.0 is -0.0, and NaN is no number.
        zero = pa.scalar(0, wanted.type)
        values, wanted = pc.add(values, zero), pc.add(wanted.filter(pc.invert(pc.is_nan(wanted))), zero)
    return pc.and_(pc.is_valid(values), pc.is_in(values, value_set=wanted))


def _like(values: pa.Array, condition: Condition) -> pa.Array:
    return pc.match_substring_regex(values, like_regex(condition.value))


def like_regex(pattern: str) -> str:
    """Return the regular expression of the same texts."""
    parts = [
        "." if match["one"] else ".*" if match["any"] else _literal(match["taken"] or match["text"])
        for match in _PARTS.finditer(pattern)
    ]
    return f"(?s)\\A{''.join(parts)}\\z"


_PARTS = re.compile(r"\\(?P<taken>.)|(?P<any>%)|(?P<one>_)|(?P<text>[^\\%_]+)", re.DOTALL)


def _literal(text: str) -> str:
    """``re.escape`` for RE2: ASCII that is no letter or digit has a backslash."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text)


def _is(values: pa.Array, condition: Condition) -> pa.Array:
    return pc.is_null(values) if condition.value else pc.is_valid(values)


_MEANINGS: Mapping[Operator, Callable[[pa.Array, Condition], pa.Array]] = {
    Operator.EQ: _compared(pc.equal),
    Operator.NE: _compared(pc.not_equal),
    Operator.LT: _compared(pc.less),
    Operator.LTE: _compared(pc.less_equal),
    Operator.GT: _compared(pc.greater),
    Operator.GTE: _compared(pc.greater_equal),
    Operator.IN: _in,
    Operator.LIKE: _like,
    Operator.IS: _is,
}

# Whether a value from the least to the most may meet the condition; of other operators that is unknown.
_RANGES: Mapping[Operator, Callable[[Any, Any, Any], bool]] = {
    Operator.EQ: lambda low, high, value: low <= value <= high,
    Operator.LT: lambda low, _, value: low < value,
    Operator.LTE: lambda low, _, value: low <= value,
    Operator.GT: lambda _, high, value: high > value,
    Operator.GTE: lambda _, high, value: high >= value,
    Operator.IN: lambda low, high, values: any(low <= value <= high for value in values),
}
_COMPARABLE = (Family.INTEGER, Family.DATE, Family.TEXT)  # whose statistics compare as their values do


def group_filter(conditions: Sequence[Condition], written: MergePlan, shown: MergePlan) -> Wanted | None:
    """Return the filter of row groups by their statistics; None if no condition can filter.

    It leaves out row groups in which no row to be shown meets the conditions.
    Only for runs whose rows are shown as they are: a state that is left out may hide an older one.
    """
    before = {column.id: column for column in written.schema.columns}
    unions = {rule.column.id for rule in shown.unions}
    ranges = [
        (before[condition.column.id].name, _RANGES[condition.operator], condition.value)
        for condition in conditions
        if condition.operator in _RANGES
        and condition.column.type.family in _COMPARABLE
        and condition.column.id in before
        and condition.column.id not in unions
        and condition.column.name not in shown.read_defaults
        and same_type(before[condition.column.id].type, condition.column.type)
    ]
    if not ranges:
        return None

    def wanted(group: pq.RowGroupMetaData) -> bool:
        chunks = {group.column(place).path_in_schema: group.column(place) for place in range(group.num_columns)}
        return all(_may_meet(chunks.get(name), test, value) for name, test, value in ranges)

    return wanted


def _may_meet(chunk: pq.ColumnChunkMetaData | None, test: Callable[[Any, Any, Any], bool], value: Any) -> bool:
    known = None if chunk is None else chunk.statistics
    return known is None or not known.has_min_max or test(known.min, known.max, value)
