"""Finds the key, column and batch for which a task fails: keys are folded one by one until one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from app.core.plan.merging.fold import combine_all, fold
from app.core.plan.merging.merge_plan import MergePlan
from app.core.rules.replays.replay import Replay
from app.core.rules.rule import Rule
from app.core.table.keys import key_to_json
from app.core.table.named_columns import names_in
from app.core.table.records import ARRIVAL_COLUMN, KIND_COLUMN, POSITION_BITS, Record, RowKind
from app.files.run_files import run_schema
from app.kernel.keys import Groups
from app.kernel.values import UnfoldableValue, values_array

_OF_THE_MACHINE: Final = (MemoryError, ImportError, OSError)  # a retry may succeed
# This many keys become Python objects together.
_KEYS_AT_ONCE: Final = 1_000
_RECORDS_AT_ONCE: Final = 1_000
Row = Mapping[str, Any]


@contextmanager
def blamed_records(plan: MergePlan, groups: Groups, records: pa.Table, now: int) -> Iterator[None]:
    """Name the key, column and batch of records whose fold fails. Raise ``UnfoldableValue``."""
    try:
        yield
    except _OF_THE_MACHINE:
        raise
    except Exception as error:
        for rows in _rows_by_key(groups, records):
            _check_records(plan, [_record(plan, row) for row in rows], now)
        raise _named(plan, error) from error


@contextmanager
def blamed_states(plan: MergePlan, groups: Groups, states: pa.Table) -> Iterator[None]:
    """Raise ``UnfoldableValue`` with key and column if the block fails because two state rows cannot be combined."""
    try:
        yield
    except _OF_THE_MACHINE:
        raise
    except Exception as error:
        for rows in _rows_by_key(groups, states):
            failure = _failure(plan, partial(combine_all, plan, rows))
            if failure is not None:
                raise UnfoldableValue(*failure, key=_key(plan, rows[0])) from error
        raise _named(plan, error) from error


def _rows_by_key(groups: Groups, table: pa.Table) -> Iterator[Sequence[Row]]:
    ends = np.append(groups.starts, len(groups.order))
    for first in range(0, len(groups.starts), _KEYS_AT_ONCE):
        bounds = ends[first : first + _KEYS_AT_ONCE + 1]
        rows = table.take(pa.array(groups.order[bounds[0] : bounds[-1]])).to_pylist()
        places = (bounds - bounds[0]).tolist()
        yield from (rows[start:end] for start, end in pairwise(places))


def _record(plan: MergePlan, row: Row) -> Record:
    return Record(RowKind(row[KIND_COLUMN]), row, row[ARRIVAL_COLUMN], names_in(plan.schema, row))


def _check_records(plan: MergePlan, records: Sequence[Record], now: int) -> None:
    """Raise ``UnfoldableValue`` if the records of one key cannot be folded."""
    _check_faults(plan, records)
    failing, sound = len(records), 0
    failure = _failure(plan, partial(fold, plan, records, now))
    if failure is None:
        return
    while failing - sound > 1:  # the first record with which the fold fails
        middle = (failing + sound) // 2
        earlier = _failure(plan, partial(fold, plan, records[:middle], now))
        failure, failing, sound = (failure, failing, middle) if earlier is None else (earlier, middle, sound)
    raise UnfoldableValue(*failure, key=_key(plan, records[0].values), batch=_batch(records[failing - 1]))


def check_older_records(plan: MergePlan, records: pa.Table) -> None:
    """Raise ``UnfoldableValue`` if records of an older schema have a value that a rule of the plan cannot read."""
    if _with_faults(plan):
        for piece in records.to_batches(max_chunksize=_RECORDS_AT_ONCE):
            _check_faults(plan, [_record(plan, row) for row in piece.to_pylist()])


def _with_faults(plan: MergePlan) -> list[Rule]:
    rules = [inner for rule in plan.rules for inner in (rule.rules if isinstance(rule, Replay) else (rule,))]
    return [rule for rule in rules if type(rule).fault is not Rule.fault]


def _check_faults(plan: MergePlan, records: Sequence[Record]) -> None:
    """Raise ``UnfoldableValue`` for a record that can never be folded (docs/semantics.md, A.7)."""
    rules = _with_faults(plan)
    for record in records if rules else ():
        for rule in rules:
            reason = rule.fault(record)
            if reason is not None:
                column = rule.columns[0].name
                raise UnfoldableValue(column, reason, _key(plan, record.values), _batch(record))


def _failure(plan: MergePlan, folded: Callable[[], Row | None]) -> tuple[str | None, str] | None:
    """Return the column and the reason for which there is no state row that a run can hold; None if there is one."""
    try:
        state = folded() or {}
        for field in list(run_schema(plan))[:-1]:
            values_array(field.name, [state.get(field.name)], field.type)
    except _OF_THE_MACHINE:
        raise
    except Exception as error:
        named = _named(plan, error)
        return (named.column, named.reason) if isinstance(named, UnfoldableValue) else (None, str(error))
    return None


def _named(plan: MergePlan, error: Exception) -> Exception:
    """Return the error with the visible column in place of a hidden one."""
    if not isinstance(error, UnfoldableValue):
        return error
    carried = {bounds.carry: bounds.column for bounds in plan.totals}
    column = carried.get(error.column or "")
    if column is None:
        return error
    reason = f"its total has more digits than can be stored for {column.type.base_sql}; delete a batch that adds to it"
    return UnfoldableValue(column.name, reason, error.key, error.batch_number)


def _key(plan: MergePlan, values: Row) -> Mapping[str, Any]:
    return key_to_json(plan.schema, tuple(values[name] for name in plan.schema.primary_key))


def _batch(record: Record) -> int:
    return record.arrival >> POSITION_BITS
