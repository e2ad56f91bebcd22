"""The fold of many keys: records to state rows, state rows of several runs to one (docs/kernel.md).

Rules define their meaning once, in ``app.core.rules``. Those that work with placeholders run by columns, the others
key by key, in the same pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.plan.merging.placeholders import (
    Step,
    combine_steps,
    combines_by_columns,
    compact_step,
    lift_steps,
    row_lift_step,
    settle_steps,
)
from app.core.rules.replays.replay import Replay
from app.core.rules.rule import Rule, State
from app.core.table.named_columns import named_words, names_in
from app.core.table.records import ARRIVAL_COLUMN, KIND_COLUMN, TOKEN_COLUMN, Record, RowKind
from app.core.table.schema import TableSchema
from app.files.run_files import run_schema
from app.kernel.columns import ROWS_AT_ONCE, Pairs, Places, States, added
from app.kernel.keys import Groups, normalised_keys
from app.kernel.replays import (
    combine_logs,
    inner_plan,
    lift_logs,
    lifts_by_columns,
    log_steps,
    settle_logs,
    with_logs,
)

Named = tuple[RowKind, frozenset[str] | None]
"""The kind of a record, and the columns that it names."""
# Digits of intermediate totals: enough for 10^22 values of 38 digits.
_TOTAL_DIGITS: Final = 60


@dataclass(frozen=True, eq=False)
class Fold:
    """A plan, with the steps that run it over columns. Steps cache their outcomes, so keep one fold for a schema."""

    plan: MergePlan
    by_columns: tuple[Rule, ...]
    by_rows: tuple[Rule, ...]
    combine: tuple[Step, ...]
    settle: tuple[tuple[Rule, Step], ...]
    inner: Mapping[str, Fold]  # of the rules that a replay folds with, by the name of its log
    _lifts: dict[Named, tuple[tuple[Step, ...], tuple[Step, ...]]] = field(default_factory=dict)

    @classmethod
    def from_plan(cls, plan: MergePlan) -> Fold:
        """Return the fold of a plan."""
        columnar = tuple(rule for rule in plan.rules if combines_by_columns(plan, rule))
        others = tuple(rule for rule in plan.rules if rule not in columnar)
        settled = [rule for rule in plan.rules if type(rule).settled is not Rule.settled]
        settling = tuple(zip(settled, settle_steps(plan), strict=True))
        inner = {rule.log: cls.from_plan(inner_plan(plan, rule)) for rule in plan.rules if isinstance(rule, Replay)}
        return cls(plan, columnar, others, combine_steps(plan, columnar), settling, inner)

    def folded(self, groups: Groups, records: pa.Table) -> pa.Table:
        """Return the state rows of records, without a time of the merge."""
        return folded(self, groups, records, 0)

    def combined(self, groups: Groups, rows: pa.Table) -> pa.Table:
        """Return the state rows of the function ``combined`` for ``rows``."""
        return combined(self, groups, rows)

    def lifts(self, form: Named) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        """Return the steps that lift records of a form: those of rules by columns, and those of rules by rows."""
        if form not in self._lifts:
            by_rows = [step for rule in self.by_rows for step in self._lift_steps(rule, form)]
            self._lifts[form] = (lift_steps(self.plan, self.by_columns, *form), tuple(by_rows))
        return self._lifts[form]

    def _lift_steps(self, rule: Rule, form: Named) -> tuple[Step, ...]:
        if isinstance(rule, Replay) and lifts_by_columns(form[0]):
            return log_steps(self.plan, rule, *form)
        return lift_steps(self.plan, [rule], *form)


def fold_of(schema: TableSchema) -> Fold:
    """Return the fold of a schema, which is created once and cached with the schema."""
    known: Fold | None = schema.worked_out.get("fold")
    return known or schema.worked_out.setdefault("fold", Fold.from_plan(compile_plan(schema)))


def folded(fold: Fold, groups: Groups, records: pa.Table, now: int) -> pa.Table:
    """Return a state row for each key of ``records``, which are in arrival order and have ``ARRIVAL_COLUMN``.

    ``now`` is the time of the merge in epoch seconds.
    """
    plan = fold.plan
    schema = run_schema(plan)
    names = [*plan.schema.by_name, ARRIVAL_COLUMN]
    source = States({name: records.column(name).combine_chunks() for name in names}, groups.order)
    states = source.with_columns(_working_types(plan))
    once = np.repeat(groups.counts == 1, groups.counts)
    for form, places in _forms(plan.schema, records, groups.order):
        columns, rows = fold.lifts(form)
        single = places[once[places]]
        Pairs(source, states, single).take(rows)
        for rule in fold.by_rows:
            if isinstance(rule, Replay):
                logged = places if lifts_by_columns(form[0]) else places[~once[places]]
                lift_logs(rule, source, states, logged, *form)
        Pairs(source, states, places).take((*columns, row_lift_step(plan, form[0], now)))
    several = groups.counts > 1
    for rule in fold.by_rows:
        rest = several & ~_replayed(fold, rule, states, groups)
        _fold_by_rows(plan, rule, source, states, records, groups, rest)
    _combine_pairs(fold, states, groups)
    _take_newest_keys(plan, states, groups)
    return normalised_keys(plan.schema, states.table(schema, groups.key_tokens, groups.starts))


def combined(fold: Fold, groups: Groups, rows: pa.Table) -> pa.Table:
    """Return the state row of each key of ``rows``: state rows under the plan, those of a key oldest first."""
    types = _working_types(fold.plan)
    columns = {name: rows.column(name).combine_chunks().cast(data_type) for name, data_type in types.items()}
    states = States(columns, groups.order)
    for rule in fold.by_rows:
        rest = (groups.counts > 1) & ~_replayed(fold, rule, states, groups)
        _combine_by_rows(fold.plan, rule, states, groups, rest)
    _combine_pairs(fold, states, groups)
    _take_newest_keys(fold.plan, states, groups)
    table = states.table(run_schema(fold.plan), groups.key_tokens, groups.starts)
    return normalised_keys(fold.plan.schema, table)


def compacted(fold: Fold, rows: pa.Table, now: int, *, oldest: bool) -> pa.Table:
    """Return the state rows that a compaction at ``now`` (epoch seconds) stores, one for each key.

    ``oldest``: there is no older run, so state that can no longer change is settled, and hidden rows may be dropped.
    """
    schema = run_schema(fold.plan)
    places = np.arange(len(rows))
    states = States({name: rows.column(name).combine_chunks() for name in schema.names[:-1]}, places)
    left = Pairs(states, states, places).take((compact_step(fold.plan, now, oldest=oldest),))
    for rule, step in fold.settle if oldest else ():
        rows_of_rule = with_logs(rule, states, places[left])
        if isinstance(rule, Replay) and rule.settles:
            rows_of_rule = rows_of_rule[~settle_logs(fold.inner[rule.log], rule, states, rows_of_rule)]
        Pairs(states, states, rows_of_rule).take([step])
    return states.table(schema, rows.column(TOKEN_COLUMN).to_numpy()[left], places[left])


def _replayed(fold: Fold, rule: Rule, states: States, groups: Groups) -> np.ndarray[Any, Any]:
    """Replay the logs of keys with several rows, if columns can. Return which keys were replayed."""
    done = np.zeros(len(groups.starts), dtype=bool)
    if isinstance(rule, Replay) and rule.late is None:
        several = np.flatnonzero(groups.counts > 1)
        starts, counts = groups.starts[several], groups.counts[several]
        rows = _places_of(starts, counts)
        done[several] = combine_logs(fold.inner[rule.log], rule, states, starts, counts, rows)
    return done


def _working_types(plan: MergePlan) -> dict[str, pa.DataType]:
    """Return the types of state columns during the fold: totals may exceed the stored type in between."""
    carries = {bounds.carry for bounds in plan.totals}
    wide = {
        field.name: field.type
        for field in run_schema(plan)
        if field.name in carries and pa.types.is_decimal(field.type)
    }
    types = {field.name: field.type for field in run_schema(plan) if field.name != TOKEN_COLUMN}
    return types | {name: pa.decimal256(_TOTAL_DIGITS, data_type.scale) for name, data_type in wide.items()}


def _take_newest_keys(plan: MergePlan, states: States, groups: Groups) -> None:
    for name in plan.schema.primary_key:
        states.rows_of[name][groups.starts] = groups.order[groups.starts + groups.counts - 1]


def _combine_pairs(fold: Fold, states: States, groups: Groups) -> None:
    for older, newer in _halves(groups.starts, groups.counts):
        Pairs(states, states, older, newer).take(fold.combine)


def _halves(starts: Places, counts: Places) -> Iterator[tuple[Places, Places]]:
    """Yield the places of rows to combine, each with its older neighbour: a key with a thousand rows takes ten steps.
    The rows of a key are ``counts`` from ``starts`` on.
    """
    several = counts > 1
    starts, counts = starts[several], counts[several]
    places = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))
    number, last = places - np.repeat(starts, counts), np.repeat(counts, counts)
    stride = 1
    while stride < int(counts.max(initial=1)):
        older = places[(number % (2 * stride) == 0) & (number + stride < last)]
        yield older, older + stride
        stride *= 2


def _forms(schema: TableSchema, records: pa.Table, order: Places) -> Iterator[tuple[Named, Places]]:
    """Return the distinct pairs of kind and named columns, each with the places of its records in ``order``."""
    words = named_words(schema)
    columns = [records.column(name).fill_null(0).to_numpy()[order] for name in (KIND_COLUMN, *words)]
    codes = np.zeros(len(order), np.int64)
    for column in columns:
        values, places = np.unique(column, return_inverse=True)
        _, codes = np.unique(codes * len(values) + places, return_inverse=True)
    by_code = np.argsort(codes, kind="stable")
    for places in np.split(by_code, np.flatnonzero(np.diff(codes[by_code])) + 1) if len(order) else ():
        kind, *named = (column[places[0]].item() for column in columns)
        yield (RowKind(kind), names_in(schema, dict(zip(words, named, strict=True)))), places


def _chunks(groups: Groups, chosen: np.ndarray[Any, Any]) -> Iterator[tuple[Places, Places]]:
    """Return the starts and counts of the chosen keys, some thousand rows at a time."""
    starts, counts = groups.starts[chosen], groups.counts[chosen]
    ends = np.flatnonzero(np.diff(np.cumsum(counts) // ROWS_AT_ONCE)) + 1
    for some, many in zip(np.split(starts, ends), np.split(counts, ends), strict=True):
        if len(some):
            yield some, many


def _places_of(starts: Places, counts: Places) -> Places:
    return np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))


def _fold_by_rows(
    plan: MergePlan,
    rule: Rule,
    source: States,
    states: States,
    records: pa.Table,
    groups: Groups,
    several: np.ndarray[Any, Any],
) -> None:
    """Fold the records of the keys that have ``several`` by one rule, a key at a time."""
    words = {name: records.column(name).fill_null(0).to_numpy() for name in (KIND_COLUMN, *named_words(plan.schema))}
    for starts, counts in _chunks(groups, several):
        places = _places_of(starts, counts)
        values = source.objects(places)
        at = groups.order[places]
        listed = {name: column[at].tolist() for name, column in words.items()}
        folds = [
            Record(
                RowKind(listed[KIND_COLUMN][n]),
                row,
                row[ARRIVAL_COLUMN],
                names_in(plan.schema, {name: column[n] for name, column in listed.items()}),
            )
            for n, row in enumerate(values)
        ]
        ends = np.cumsum(counts).tolist()
        made = [
            _folded_by(plan, rule, folds[end - count : end]) for end, count in zip(ends, counts.tolist(), strict=True)
        ]
        _replace(states, starts, made)


def _folded_by(plan: MergePlan, rule: Rule, records: Sequence[Record]) -> State:
    removed = max((place for place, record in enumerate(records) if plan.row.removes(record)), default=-1)
    left = records[removed + 1 :]
    return rule.fold_records(left) if left else rule.empty


def _combine_by_rows(plan: MergePlan, rule: Rule, states: States, groups: Groups, chosen: np.ndarray[Any, Any]) -> None:
    """Combine the state rows of the ``chosen`` keys by one rule, a key at a time."""
    for starts, counts in _chunks(groups, chosen):
        rows = states.objects(_places_of(starts, counts))
        ends = np.cumsum(counts).tolist()
        made = [
            _combined_by(plan, rule, rows[end - count : end]) for end, count in zip(ends, counts.tolist(), strict=True)
        ]
        _replace(states, starts, made)


def _combined_by(plan: MergePlan, rule: Rule, states: Sequence[Mapping[str, Any]]) -> State:
    last_end = max((place for place, state in enumerate(states) if plan.row.ends(state)), default=0)
    return rule.combine_all(states[last_end:])


def _replace(states: States, rows: Places, made: Sequence[State]) -> None:
    for name, at, values in [*added(states, rows, made)]:
        states.rows_of[name][at] = values
