"""Replayed rows by columns: the logs of many keys are one table of records, folded in merge order by the rules inside.

A key is replayed row by row if columns cannot decide which entries of its log count: with records that may be too
late, and with -D records for which sequence groups decide whether they remove the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.core.plan.merging.merge_plan import MergePlan
from app.core.plan.merging.placeholders import Step
from app.core.plan.merging.terms import Side
from app.core.rules.log_records import LogRecords
from app.core.rules.order import Order
from app.core.rules.replays.replay import Replay
from app.core.rules.row import LIVE_COLUMN, REMOVED_AT, Liveness, RowRule
from app.core.rules.rule import Rule, State
from app.core.rules.stepwise import Stepwise
from app.core.table.named_columns import ALL_NAMED, named_words, words_naming
from app.core.table.records import ARRIVAL_COLUMN, KIND_COLUMN, TOKEN_COLUMN, Record, RowKind
from app.core.types.datatype import DataType
from app.core.types.kinds import Kind
from app.files.arrow import arrow_type
from app.files.run_files import run_schema
from app.kernel.columns import Places, States, Truths
from app.kernel.keys import Groups

_NOTHING = -1


class Inner(Protocol):
    """The fold of the inner rules."""

    @property
    def plan(self) -> MergePlan:
        """The plan of these rules alone."""

    def folded(self, groups: Groups, records: pa.Table) -> pa.Table:
        """Return one state row for each key of the records, which are in merge order."""

    def combined(self, groups: Groups, rows: pa.Table) -> pa.Table:
        """Return one state row for each key of the rows, which are in order, oldest first."""


def inner_plan(plan: MergePlan, rule: Replay) -> MergePlan:
    """Return a plan of the rules that a replay folds with, over records in merge order."""
    return replace(plan, rules=rule.rules, row=RowRule(Liveness.ALWAYS))


@dataclass(frozen=True, eq=False)
class Logs:
    """The log entries of ``count`` keys. Those of a key are neighbours, in the order in which they are stored.

    ``keys``: the number of each entry's key. ``bases``: the base before each key's log, null if there is none.
    """

    rule: Replay
    count: int
    keys: Places
    entries: pa.StructArray
    bases: pa.StructArray | None

    @classmethod
    def from_states(cls, rule: Replay, states: States, rows: Places, counts: Places) -> Logs:
        """Return the logs of keys: ``counts`` says how many of ``rows`` each key has, the oldest first."""
        logs = states.values[rule.log].take(states.rows_of[rule.log][rows])
        lengths = np.asarray(pc.fill_null(pc.list_value_length(logs), 0), dtype=np.int64)
        keys = np.repeat(np.repeat(np.arange(len(counts)), counts), lengths)
        oldest = rows[np.cumsum(counts) - counts]
        bases = states.values[rule.base].take(states.rows_of[rule.base][oldest]) if rule.settles else None
        return cls(rule, len(counts), keys, logs.flatten(), bases)

    @property
    def kinds(self) -> Places:
        """The row kind of each entry."""
        return np.asarray(self._member(KIND_COLUMN), dtype=np.int64)

    def _member(self, name: str) -> pa.Array:
        return self.entries.field(self.entries.type.get_field_index(name))

    def by_columns(self) -> Truths:
        """Return which keys can be replayed by columns."""
        by_columns = np.full(self.count, self.rule.late is None)
        if self.rule.listed:
            by_columns[self.keys[self.kinds == RowKind.DELETE]] = False
            if self.bases is not None:
                by_columns &= ~np.asarray(pc.struct_field(self.bases, REMOVED_AT).is_valid())
        return by_columns

    def replayed(self, fold: Inner) -> Replayed:
        """Return the result of the logs, replayed by the ``fold`` of the inner rules."""
        order = self._merge_order()
        removals = np.full(self.count, _NOTHING)
        deletes = np.flatnonzero(self.kinds[order] == RowKind.DELETE)
        removals[self.keys[order[deletes]]] = deletes  # the last one of a key stays
        places = np.arange(len(order))
        kept = places >= removals[self.keys[order]]
        left = order[places > removals[self.keys[order]]]
        live = np.zeros(self.count, dtype=bool)
        live[self.keys[left[self.kinds[left] % 2 == 0]]] = True
        removed = removals != _NOTHING
        removed_at = np.full(self.count, _NOTHING)
        arrivals = np.asarray(self._member(ARRIVAL_COLUMN))
        removed_at[removed] = arrivals[order[removals[removed]]]
        rows, based = self._states(fold, left, removed)
        live |= based & ~removed
        stays = np.zeros(len(order), dtype=bool)
        stays[order[kept]] = True
        return Replayed(self, rows, live, removed_at, stays)

    def _merge_order(self) -> Places:
        """Return the places of the entries by key and merge order."""
        by_arrival = np.argsort(np.asarray(self._member(ARRIVAL_COLUMN)), kind="stable")
        if not self.rule.order.by_arrival:
            names = {field.column.name: self.rule.members[field.column.name] for field in self.rule.order.fields}
            columns: dict[str, list[Any]] = {
                name: self._member(member).take(pa.array(by_arrival)).to_pylist() for name, member in names.items()
            }
            adds = (self.kinds[by_arrival] % 2 == 0).tolist()
            ranks = self.rule.order.ranks(columns.__getitem__, adds.__getitem__, range(len(by_arrival)))
            by_arrival = by_arrival[sorted(range(len(by_arrival)), key=ranks.__getitem__)]
        return by_arrival[np.argsort(self.keys[by_arrival], kind="stable")]

    def _states(self, fold: Inner, left: Places, removed: Truths) -> tuple[pa.Table, Truths]:
        """Return the states of the inner rules for each key with a base or records ``left``, and
        which bases are live.
        """
        states = [fold.folded(_groups(self.keys, left), self._records(fold.plan))]
        live = np.zeros(self.count, dtype=bool)
        if self.bases is not None and self.bases.null_count < self.count:
            with_base = np.flatnonzero(np.asarray(self.bases.is_valid()) & ~removed)
            bases = self.bases.take(pa.array(with_base))
            states.insert(0, self._base_states(fold.plan, bases, with_base))
            live[with_base] = np.asarray(pc.fill_null(bases.field(bases.type.get_field_index(LIVE_COLUMN)), False))
        together = pa.concat_tables(states).combine_chunks()
        tokens = together.column(TOKEN_COLUMN).to_numpy()
        return fold.combined(_groups(tokens, np.arange(len(tokens))), together), live

    def _base_states(self, plan: MergePlan, bases: pa.StructArray, keys: Places) -> pa.Table:
        members = {**self.rule.members, **{hidden.name: hidden.name for hidden in plan.hidden}}
        columns = []
        for field in run_schema(plan):
            place = bases.type.get_field_index(members.get(field.name, ""))
            column = bases.field(place).cast(field.type) if place >= 0 else pa.nulls(len(keys), field.type)
            columns.append(pa.array(keys) if field.name == TOKEN_COLUMN else column)
        return pa.table(columns, schema=run_schema(plan))

    def _records(self, plan: MergePlan) -> pa.Table:
        members = {member.name: member for member in self.entries.type}
        of_column = {column.name: self.rule.members.get(column.name, "") for column in plan.schema.columns}
        columns = {
            column.name: self._member(of_column[column.name]).cast(arrow_type(column.type))
            if of_column[column.name] in members
            else pa.nulls(len(self.entries), arrow_type(column.type))
            for column in plan.schema.columns
        }
        for word in named_words(plan.schema):
            every = pa.repeat(pa.scalar(ALL_NAMED, pa.int64()), len(self.entries))
            columns[word] = self._member(word) if word in members else every
        return pa.table({**columns, **{name: self._member(name) for name in (KIND_COLUMN, ARRIVAL_COLUMN)}})


def _groups(keys: Places, order: Places) -> Groups:
    """Return the groups of the rows that are in ``order``, by key and age within it."""
    by_key = order[np.argsort(keys[order], kind="stable")]
    first = np.ones(len(by_key), dtype=bool)
    first[1:] = keys[by_key][1:] != keys[by_key][:-1]
    return Groups(keys, by_key, np.flatnonzero(first))


@dataclass(frozen=True, eq=False)
class Replayed:
    """The result of replayed logs. ``rows``: the states of the inner rules, for keys that have any.

    ``removed_at``: per key the arrival of the -D that last removed it, -1 for none. ``stays``: the entries that no -D
    removes permanently.
    """

    logs: Logs
    rows: pa.Table
    live: Truths
    removed_at: Places
    stays: Truths

    def column(self, name: str) -> pa.Array:
        """Return a state column of the inner rules, for every key."""
        at = np.full(self.logs.count, _NOTHING)
        keys = self.rows.column(TOKEN_COLUMN).to_numpy()
        at[keys] = np.arange(len(keys))
        values = self.rows.column(name).combine_chunks().take(pa.array(at, mask=at == _NOTHING))
        default = self._of_nothing[name]
        return values if default is None else pc.fill_null(values, default)

    @cached_property
    def _of_nothing(self) -> Mapping[str, Any]:
        """Return the state of the inner rules without records: a bitmask that names nothing is 0."""
        none = LogRecords((), Order(), self.logs.rule.members)
        return {name: value for rule in self.logs.rule.rules for name, value in rule.fold_log(none).items()}

    def log(self, data_type: pa.DataType) -> pa.Array:
        """Return the log that is stored for each key."""
        counts = np.bincount(self.logs.keys[self.stays], minlength=self.logs.count)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        entries = self.logs.entries.filter(pa.array(self.stays))
        return pa.ListArray.from_arrays(pa.array(offsets), entries).cast(data_type)

    def base(self, data_type: pa.StructType) -> pa.StructArray:
        """Return the base that replaces the log of each key, once no older record can come."""
        names = {member: name for name, member in self.logs.rule.members.items()}
        values = {LIVE_COLUMN: pa.array(self.live), REMOVED_AT: self._removed_at()}
        inner = set(self.rows.column_names)
        members = []
        for field in data_type:
            name = names.get(field.name, field.name)
            known = values.get(name)
            if known is None:
                known = self.column(name) if name in inner else pa.nulls(self.logs.count, field.type)
            members.append(known.cast(field.type))
        return pa.StructArray.from_arrays(members, fields=list(data_type))

    def _removed_at(self) -> pa.Array:
        values = pa.array(self.removed_at, mask=self.removed_at == _NOTHING)
        bases = self.logs.bases
        return values if bases is None else pc.coalesce(values, pc.struct_field(bases, REMOVED_AT))


def lifts_by_columns(kind: RowKind) -> bool:
    """Return whether lone records of the kind are lifted by ``lift_logs``. A -D may remove the row."""
    return kind is not RowKind.DELETE


def log_steps(plan: MergePlan, replay: Replay, kind: RowKind, named: frozenset[str] | None) -> tuple[Step, ...]:
    """Return the steps for the log of a single record, one for each inner rule."""
    types = {column.name: column.type for column in plan.schema.columns} | {ARRIVAL_COLUMN: DataType(Kind.BIGINT)}
    stored = frozenset(replay.names)
    return tuple(
        Step(partial(_lifted, rule, stored, kind, named), types, (Side.OLDER,), frozenset({ARRIVAL_COLUMN}))
        for rule in replay.rules
    )


def _lifted(
    rule: Rule, stored: frozenset[str], kind: RowKind, named: frozenset[str] | None, values: Mapping[str, Any]
) -> State:
    lifted = rule.lift(Record(kind, values, values[ARRIVAL_COLUMN], named))
    return {name: value for name, value in rule.combine_all([rule.empty, lifted]).items() if name in stored}


def lift_logs(
    replay: Replay, source: States, states: States, places: Places, kind: RowKind, named: frozenset[str] | None
) -> None:
    """Set the logs of the rows at ``places``, each of a key with a single record: the record itself."""
    values = states.values[replay.log]
    logs = pa.ListArray.from_arrays(
        pa.array(np.arange(len(places) + 1, dtype=np.int32)),
        _entries(replay, source, places, kind, named, values.type.value_type),
    )
    states.rows_of[replay.log][places] = values.add(logs.cast(values.type))
    states.rows_of[LIVE_COLUMN][places] = states.values[LIVE_COLUMN].constant(kind.add)


def _entries(
    replay: Replay,
    source: States,
    places: Places,
    kind: RowKind,
    named: frozenset[str] | None,
    entry_type: pa.StructType,
) -> pa.StructArray:
    names = {member: name for name, member in replay.members.items()} | {ARRIVAL_COLUMN: ARRIVAL_COLUMN}
    words = words_naming(replay.columns, named) if replay.logs_names else {}
    same: dict[str, int] = {KIND_COLUMN: int(kind), **words}
    members = [
        source.values[names[field.name]].take(source.rows_of[names[field.name]][places]).cast(field.type)
        if field.name in names
        else pa.repeat(pa.scalar(same[field.name], field.type), len(places))
        for field in entry_type
    ]
    return pa.StructArray.from_arrays(members, fields=list(entry_type))


def with_logs(rule: Rule, states: States, places: Places) -> Places:
    """Return the ``places`` whose rows have a log, if only these may be settled; else all."""
    if not isinstance(rule, Replay | Stepwise) or rule.log not in states.values:
        return places
    of_rows = states.rows_of[rule.log][places]
    lengths = pc.fill_null(pc.list_value_length(states.values[rule.log].array), 0)
    return places[np.asarray(lengths)[of_rows] > 0]


def combine_logs(fold: Inner, rule: Replay, states: States, starts: Places, counts: Places, rows: Places) -> Truths:
    """Replay the logs of keys into their rows at ``starts``. Return the replayed keys; the others must go row by row.

    ``rows``: where the rows of the keys are, oldest first, ``counts`` of each.
    """
    logs = Logs.from_states(rule, states, rows, counts)
    by_columns = logs.by_columns()
    if not by_columns.all():
        logs = Logs.from_states(rule, states, rows[np.repeat(by_columns, counts)], counts[by_columns])
    merged = logs.replayed(fold)
    made: dict[str, pa.Array] = {name: merged.column(name) for name in rule.names if name in merged.rows.column_names}
    made |= {rule.log: merged.log(states.values[rule.log].type), LIVE_COLUMN: pa.array(merged.live)}
    if logs.bases is not None:
        made[rule.base] = logs.bases
    _store(states, starts[by_columns], made)
    return by_columns


def settle_logs(fold: Inner, rule: Replay, states: States, rows: Places) -> Truths:
    """Replace the log of each of ``rows`` by a base. Return the settled ones; the others must go row by row."""
    logs = Logs.from_states(rule, states, rows, np.ones(len(rows), np.int64))
    by_columns = logs.by_columns()
    if not by_columns.all():
        logs = Logs.from_states(rule, states, rows[by_columns], np.ones(int(by_columns.sum()), np.int64))
    merged = logs.replayed(fold)
    outside = np.zeros(logs.count, dtype=bool)
    for bounds in rule.bounds:
        outside |= np.asarray(merged.column(bounds.carry).is_valid())
    settled = np.flatnonzero(~outside)
    log_type, base_type = states.values[rule.log].type, states.values[rule.base].type
    empty = pa.ListArray.from_arrays(pa.array(np.zeros(len(settled) + 1, np.int32)), pa.nulls(0, log_type.value_type))
    bases = merged.base(base_type).take(pa.array(settled))
    _store(states, rows[by_columns][settled], {rule.log: empty.cast(log_type), rule.base: bases})
    return by_columns


def _store(states: States, rows: Places, columns: Mapping[str, pa.Array]) -> None:
    for name, values in columns.items():
        states.rows_of[name][rows] = states.values[name].add(values.cast(states.values[name].type))
