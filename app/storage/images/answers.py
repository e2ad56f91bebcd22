"""Rows of a data file as the entries of its image of answers, made a batch at a time (decision 17).

An entry is the key as ``key_json`` writes it, a byte with the kind of answer (``Known``), and for a row its JSON. If
columns decide which of a key's rows wins, a line break and their values as a JSON array follow.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.core.errors import KeyfoldError
from app.core.plan.merging.merge_plan import MergePlan
from app.core.plan.records.answers import to_json
from app.core.rules.row import LIVE_COLUMN, Liveness
from app.core.rules.widening import same_type, widened
from app.core.table.schema import Column
from app.core.types.datatype import DataType
from app.core.types.kinds import Family
from app.files.arrow import arrow_type
from app.storage.images.json_texts import TEXT, Texts, each, join, json_pieces, json_texts

STANDING = "\n"  # no JSON of a row holds one
Parts = list[pa.Array | str]  # of texts that are joined, row by row

_ODD = (ValueError, ArithmeticError, KeyfoldError, pa.ArrowException)  # what encoding a value raises


class Known(Enum):
    """The kind of answer in an entry."""

    ROW = "R"  # its row is visible; its JSON follows
    DELETED = "D"  # no row is visible
    STATE = "S"  # only the state row has the answer: a total is outside its column's type, or it has no JSON


def entries(batch: pa.RecordBatch, written: MergePlan, shown: MergePlan) -> pa.Array:
    """Return the entries of state rows that were written under one plan, as another, equivalent plan shows them."""
    keys, standings = _keys(batch, written, shown), _standings(batch, written, shown)
    live, unsettled = live_rows(batch, shown), unsettled_rows(batch, written)
    answered = pc.and_(live, pc.invert(unsettled))
    rows = join(*keys, Known.ROW.value, *_bodies(batch, written, shown), *standings)
    if answered.true_count == len(batch):
        return rows
    rest = pc.if_else(unsettled, pa.scalar(Known.STATE.value, TEXT), pa.scalar(Known.DELETED.value, TEXT))
    return pc.if_else(answered, rows, join(*keys, rest, *standings))


def entries_but_odd(batch: pa.RecordBatch, written: MergePlan, shown: MergePlan, most_odd: int) -> tuple[pa.Array, int]:
    """Return ``entries``, and how many more odd rows ``most_odd`` allows. Raise the last one's error if there are too
    many.

    An odd row has no answer in bytes (a time that Python does not have). It is answered from its state row, and
    finding it takes two dozen attempts.
    """
    try:
        return entries(batch, written, shown), most_odd
    except _ODD:
        if len(batch) == 1 and most_odd:
            return _left_to_state(batch, written, shown), most_odd - 1
        if len(batch) <= 1:
            raise
    half = len(batch) // 2
    first, most_odd = entries_but_odd(batch.slice(0, half), written, shown, most_odd)
    second, most_odd = entries_but_odd(batch.slice(half), written, shown, most_odd)
    return pa.concat_arrays([first, second]), most_odd


def _left_to_state(row: pa.RecordBatch, written: MergePlan, shown: MergePlan) -> pa.Array:
    try:
        return join(*_keys(row, written, shown), Known.STATE.value)
    except _ODD:
        return pa.array([Known.STATE.value], TEXT)  # begins with no key


def live_rows(batch: pa.RecordBatch, shown: MergePlan) -> pa.Array:
    """Return which state rows are visible rows, as ``RowRule.is_live`` says it."""
    if shown.row.liveness is Liveness.ALWAYS:
        return pa.array(np.ones(len(batch), dtype=bool))
    if LIVE_COLUMN not in batch.schema.names:
        return pa.array(np.zeros(len(batch), dtype=bool))
    return pc.fill_null(batch.column(LIVE_COLUMN), False)


def unsettled_rows(batch: pa.RecordBatch, written: MergePlan) -> pa.Array:
    """Return which state rows hold a total outside its column's type."""
    unsettled = pa.array(np.zeros(len(batch), dtype=bool))
    for bounds in written.totals:
        if bounds.carry in batch.schema.names:
            unsettled = pc.or_(unsettled, pc.is_valid(batch.column(bounds.carry)))
    return unsettled


def _keys(batch: pa.RecordBatch, written: MergePlan, shown: MergePlan) -> Parts:
    before = {column.id: column for column in written.schema.columns}
    parts: Parts = ["["]
    for column in shown.schema.key_columns:
        values = stored_values(batch, before[column.id])
        if column.type.family is Family.FLOATING:
            values = pc.add(values, pa.scalar(0.0, values.type))  # -0.0 is 0.0: one key
        parts += [json_texts(values, column.type), ","]
    return [*parts[:-1], "]"]


def _standings(batch: pa.RecordBatch, written: MergePlan, shown: MergePlan) -> Parts:
    """Return the end of each entry if columns decide which row wins: the values of these columns, under the plan that
    shows them.
    """
    if shown.whole is None or not shown.whole.columns:
        return []
    before = {column.id: column for column in written.schema.columns}
    parts: Parts = [f"{STANDING}["]
    for column in shown.whole.columns:
        parts += [_converted(batch, before[column.id], column, _as_it_is, "null").whole, ","]
    return [*parts[:-1], "]"]


def _bodies(batch: pa.RecordBatch, written: MergePlan, shown: MergePlan) -> Parts:
    before = {column.id: column for column in written.schema.columns}
    parts: Parts = []
    literal = "{"
    for column in shown.schema.columns:
        texts = _shown(batch, before.get(column.id), column, shown)
        literal += f"{to_json(column.name).decode()}:"
        if isinstance(texts, str):
            literal += f"{texts},"
        else:
            parts += [literal + texts.before, texts.inner]
            literal = f"{texts.after},"
    return [*parts, literal[:-1] + "}"]


def _shown(batch: pa.RecordBatch, before: Column | None, column: Column, shown: MergePlan) -> Texts | str:
    """Return the JSON texts of a column, as ``finish`` shows what Spark stored in a state row (``fold.shown_row``)."""
    missing = to_json(column.type.encoder(shown.read_defaults.get(column.name))).decode()
    if before is None:
        return missing
    unions = {rule.column.id: rule.shown for rule in shown.unions}
    return _converted(batch, before, column, unions.get(column.id, _as_it_is), missing)


def _converted(
    batch: pa.RecordBatch, before: Column, column: Column, finish: Callable[[Any], Any], missing: str
) -> Texts:
    """Return the JSON texts of values that were stored as ``before``, converted to ``column``."""
    values = stored_values(batch, before)
    if finish is _as_it_is and same_type(before.type, column.type):
        return json_pieces(values, column.type, missing)
    encode, old = column.type.encoder, before.type
    texts = each(values, lambda value: encode(finish(widened(value, old, column.type))))
    return Texts(pc.fill_null(texts, pa.scalar(missing, TEXT)))


def _as_it_is(value: Any) -> Any:
    return value


def stored_values(batch: pa.RecordBatch, column: Column) -> pa.Array:
    """Return a column of state rows, in the type that Arrow has for it."""
    values = batch.column(column.name)
    return (
        values
        if _nested(column.type) or values.type == arrow_type(column.type)
        else values.cast(arrow_type(column.type))
    )


def _nested(data_type: DataType) -> bool:
    return bool(data_type.nested)
