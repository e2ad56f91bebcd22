"""Rows that a delete can remove in the middle of their history: the state is the log of the row's records.

Needed where a removal does not simply end everything that arrived before it: a -D with a sequence field removes what
sorts before it, however late that arrives, and a -D that a sequence group accepts depends on all groups
(merge-semantics §4.4, §9.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from app.core.rules.accumulators import Union
from app.core.rules.order import Order
from app.core.rules.register import Register
from app.core.rules.row import LIVE_COLUMN, REMOVED_AT
from app.core.rules.rule import BOOLEAN, HiddenColumn, Rule, Settled, Sql, State, TotalBounds
from app.core.rules.spark_sql import any_not_null, literal, ref, sorted_sql
from app.core.table.records import ARRIVAL_COLUMN, KIND_COLUMN, Record, RowKind
from app.core.table.schema import Column
from app.core.types.datatype import DataType, Field
from app.core.types.kinds import Kind

LOG = "_kf_log"
_REPLAYED = "_kf_replayed"


@dataclass(frozen=True)
class Replay(Rule):
    """All columns of a row whose records are replayed in merge order with ``rules``.

    ``listed`` are the sequence groups whose accepted -D removes the row; without any, every -D does.
    """

    columns: tuple[Column, ...]
    rules: tuple[Rule, ...]
    order: Order
    listed: tuple[Register, ...] = ()

    @cached_property
    def hidden(self) -> tuple[HiddenColumn, ...]:
        log = HiddenColumn(LOG, DataType(Kind.ARRAY, element=self.entry_type))
        carries = {bounds.carry for bounds in self.bounds}
        kept = [hidden for rule in self.rules for hidden in rule.hidden if hidden.name in carries]
        return (HiddenColumn(LIVE_COLUMN, BOOLEAN), log, *kept)

    @cached_property
    def entry_type(self) -> DataType:
        """The type of a log entry: arrival, kind, the columns by id."""
        own = (Field(-2, ARRIVAL_COLUMN, DataType(Kind.BIGINT)), Field(-1, KIND_COLUMN, DataType(Kind.TINYINT)))
        fields = (*own, *(Field(c.id, _member(c), c.type.with_nullable(True)) for c in self.columns))
        return DataType(Kind.ROW, fields=fields)

    @cached_property
    def bounds(self) -> tuple[TotalBounds, ...]:
        """Those of the rules inside; what one run removes another one may have added, so that no totals add up."""
        return tuple(replace(bounds, additive=False) for rule in self.rules for bounds in rule.bounds)

    def fault(self, record: Record) -> str | None:
        return next((fault for rule in self.rules if (fault := rule.fault(record)) is not None), None)

    def lift(self, record: Record) -> State:
        values = {_member(column): record.values[column.name] for column in self.columns}
        return self._replayed([{ARRIVAL_COLUMN: record.arrival, KIND_COLUMN: int(record.kind), **values}])

    def combine(self, older: Mapping[str, Any], newer: Mapping[str, Any]) -> State:
        return self._replayed([*(older[LOG] or []), *(newer[LOG] or [])])

    def _replayed(self, log: Sequence[Mapping[str, Any]]) -> State:
        row = self._row(log)
        carried = {name: total for rule in self.rules for name, total in rule.carried(row.state).items()}
        return {**dict.fromkeys(self.names), LIVE_COLUMN: row.live, LOG: log, **carried}

    def _row(self, log: Sequence[Mapping[str, Any]]) -> _Row:
        row = _Row(self)
        for record in sorted(map(self._record, log), key=self._rank):
            row.fold(record)
        return row

    def _record(self, entry: Mapping[str, Any]) -> Record:
        """The record of a log entry; one that is older than a column is null there."""
        values = {column.name: entry.get(_member(column)) for column in self.columns}
        return Record(RowKind(entry[KIND_COLUMN]), values, entry[ARRIVAL_COLUMN])

    def inner_state(self, state: Mapping[str, Any]) -> State:
        """What the rules inside hold after the log of ``state``."""
        return self._row(state[LOG]).state

    def removal(self, state: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The log entry of the -D that last removed the row of ``state``; None if none did."""
        removed_at = self._row(state[LOG]).removed_at
        return next((entry for entry in state[LOG] if entry[ARRIVAL_COLUMN] == removed_at), None)

    def removed(self, removal: Mapping[str, Any]) -> State:
        """The state of a row of which nothing is known but the log entry of its last removal."""
        return self._replayed([removal])

    def removed_at_sql(self, log: str) -> str:
        """The arrival of what ``removal`` finds in ``log``."""
        return f"{self._replay_sql(log)}.{REMOVED_AT}"

    def closed_groups(self, state: Mapping[str, Any], record: Record) -> set[tuple[str, ...]]:
        """The groups that a removal closed to a record that is older (merge-semantics A.8)."""
        return self._row(state[LOG]).closed_to(record)

    def removes(self, inner: Mapping[str, Any] | None, record: Record) -> bool:
        """Whether a record removes a row whose rules hold ``inner``."""
        if record.kind is not RowKind.DELETE:
            return False
        before = inner if inner is not None else {n: v for rule in self.rules for n, v in rule.empty.items()}
        lifted = {name: value for rule in self.rules for name, value in rule.lift(record).items()}
        return not self.listed or any(register.newer_wins(before, lifted) for register in self.listed)

    def finish(self, state: Mapping[str, Any]) -> State:
        inner = self.inner_state(state)
        return {name: value for rule in self.rules for name, value in rule.finish(inner).items()}

    def _rank(self, record: Record) -> tuple[Any, ...]:
        return (*self.order.rank(record.values, record.kind.add), record.arrival)

    def _entry_sql(self) -> str:
        own = [f"{literal(name)}, r.{name}" for name in (ARRIVAL_COLUMN, KIND_COLUMN)]
        members = [f"{literal(_member(column))}, {ref('r', column.name)}" for column in self.columns]
        return f"named_struct({', '.join([*own, *members])})"

    def _record_sql(self, entry: str) -> str:
        """As ``_record``, a struct of the columns by name."""
        own = [f"{literal(name)}, {entry}.{name}" for name in (ARRIVAL_COLUMN, KIND_COLUMN)]
        members = [f"{literal(column.name)}, {entry}.{_member(column)}" for column in self.columns]
        return f"named_struct({', '.join([*own, *members])})"

    @cached_property
    def _gathered(self) -> Mapping[str, Union]:
        """Columns whose values are gathered in an array while the log is replayed, and joined after that."""
        return {rule.column.name: rule for rule in self.rules if isinstance(rule, Union) and rule.runs_python}

    def _only_log_sql(self, log: str) -> Sql:
        return {**dict.fromkeys(self.names, "NULL"), LOG: log}

    def fold_sql(self, also: str) -> tuple[Sql, Sql]:
        found = "_kf_found"
        return {found: f"collect_list({self._entry_sql()}) FILTER (WHERE {also})"}, self._only_log_sql(found)

    def lift_sql(self) -> Sql:
        return self._only_log_sql(f"array({self._entry_sql()})")

    def combine_sql(self, older: str, newer: str) -> Sql:
        return self._only_log_sql(f"concat({ref(older, LOG)}, {ref(newer, LOG)})")

    def settle_sql(self, state: str, oldest: bool) -> Settled:
        log = ref(state, LOG)
        kept = log if self.listed else self._without_removed_sql(log)
        replayed = {name: f"{state}.{_REPLAYED}.{ref('', name)[1:]}" for name in self.names if name != LOG}
        replayed |= {name: rule.folded.format(vs=replayed[name]) for name, rule in self._gathered.items()}
        return Settled({_REPLAYED: self._replay_sql(log)}, {**replayed, LOG: kept})

    def _keys_sql(self, entry: str) -> list[str]:
        reference = {field.column.name: f"{entry}.{_member(field.column)}" for field in self.order.fields}
        return [*self.order.sql(reference, f"({entry}.{KIND_COLUMN} IN (0, 2))"), f"{entry}.{ARRIVAL_COLUMN}"]

    def _without_removed_sql(self, log: str) -> str:
        """The log without what its last -D removes for good; the -D itself stays, for records that come late."""
        keys = f"struct({', '.join(self._keys_sql('e'))})"
        removals = f"transform(filter({log}, e -> e.{KIND_COLUMN} = 3), e -> {keys})"
        return f"IF(size({removals}) = 0, {log}, filter({log}, e -> {keys} >= array_max({removals})))"

    def _inner_columns(self) -> dict[str, str]:
        """Names and Spark types of what is accumulated: the state of every rule."""
        columns = {column.name: column.type.spark for rule in self.rules for column in rule.columns}
        columns |= dict.fromkeys(self._gathered, "ARRAY<BINARY>")
        return columns | {hidden.name: hidden.type.spark for rule in self.rules for hidden in rule.hidden}

    def _accumulator_type(self) -> str:
        members = [f"{ref('', name)[1:]}: {spark_type}" for name, spark_type in self._inner_columns().items()]
        members += [f"{LIVE_COLUMN}: BOOLEAN", f"{REMOVED_AT}: BIGINT", *self._tombstone_types()]
        return f"STRUCT<{', '.join(members)}>"

    def _tombstone_types(self) -> list[str]:
        return [f"_kf_tombstone{i}: {self._tombstone_type(register)}" for i, register in enumerate(self.listed)]

    def _tombstone_type(self, register: Register) -> str:
        types = {column.name: column.type.spark for column in register.columns}
        return f"STRUCT<{', '.join(f'g{i}: {types[name]}' for i, name in enumerate(register.part.group))}>"

    def _replay_sql(self, log: str) -> str:
        ordered = sorted_sql(log, self._keys_sql("{e}"))
        lifted = {name: sql for rule in self.rules for name, sql in rule.lift_sql().items()}
        lifted |= {name: f"filter(array({lifted[name]}), v -> v IS NOT NULL)" for name in self._gathered}
        read = {name: f"r.{name}" for name in (KIND_COLUMN, ARRIVAL_COLUMN)}
        records = f"transform({ordered}, e -> {self._record_sql('e')})"
        states = f"transform({records}, r -> {self._struct_sql(lifted, read)})"
        accumulator = self._accumulator_type()
        nothing = [f"'_kf_tombstone{i}', NULL" for i in range(len(self.listed))]
        zero = f"CAST({self._struct_sql({}, {LIVE_COLUMN: 'FALSE', REMOVED_AT: 'NULL'}, nothing)} AS {accumulator})"
        step = f"CASE WHEN {self._removes_sql()} THEN {self._removed_sql()} ELSE {self._folded_sql()} END"
        folded = f"aggregate({states}, {zero}, (a, n) -> CAST({step} AS {accumulator}))"
        # Each total is a member of its own before anything uses it: written out, it would be folded once per use.
        return f"transform(transform(array({folded}), x -> {self._stepped_sql()}), x -> {self._finished_sql()})[0]"

    def _struct_sql(self, values: Sql, own: Sql, tail: Sequence[str] = ()) -> str:
        """A struct of the inner columns (null where ``values`` has none), then ``own`` and ``tail``."""
        members = [
            f"{literal(name)}, CAST({values.get(name, 'NULL')} AS {spark_type})"
            for name, spark_type in self._inner_columns().items()
        ]
        return f"named_struct({', '.join([*members, *(f'{literal(k)}, {v}' for k, v in own.items()), *tail])})"

    def _removes_sql(self) -> str:
        accepted = " OR ".join(register.newer_wins_sql("a", "n") for register in self.listed)
        deleted = f"n.{KIND_COLUMN} = 3"
        return f"{deleted} AND ({accepted})" if self.listed else deleted

    def _removed_sql(self) -> str:
        """Nothing is left but, of the groups that accepted the -D, its sequence."""
        values: Sql = {}
        tombstones = []
        for i, register in enumerate(self.listed):
            accepted = register.newer_wins_sql("a", "n")
            values |= {name: f"IF({accepted}, {ref('n', name)}, NULL)" for name in register.names}
            sequence = ", ".join(f"'g{place}', {ref('n', name)}" for place, name in enumerate(register.part.group))
            tombstones.append(f"'_kf_tombstone{i}', IF({accepted}, named_struct({sequence}), NULL)")
        return self._struct_sql(values, {LIVE_COLUMN: "FALSE", REMOVED_AT: f"n.{ARRIVAL_COLUMN}"}, tombstones)

    def _folded_sql(self) -> str:
        # What a removal left behind is null.
        joined = "concat(coalesce({a}, array()), {n})"
        stale = {register.part.group: self._stale_sql(i, register) for i, register in enumerate(self.listed)}
        values: Sql = {}
        for rule in self.rules:
            folded = rule.combine_sql("a", "n")
            folded |= {n: joined.format(a=ref("a", n), n=ref("n", n)) for n in folded if n in self._gathered}
            closed = stale.get(rule.part.group)
            values |= folded if closed is None else {n: f"IF({closed}, {ref('a', n)}, {v})" for n, v in folded.items()}
        live = f"(a.{LIVE_COLUMN} OR (n.{KIND_COLUMN} IN (0, 2) AND NOT ({' OR '.join(stale.values()) or 'FALSE'})))"
        tombstones = [f"'_kf_tombstone{i}', a._kf_tombstone{i}" for i in range(len(self.listed))]
        return self._struct_sql(values, {LIVE_COLUMN: live, REMOVED_AT: f"a.{REMOVED_AT}"}, tombstones)

    def _stale_sql(self, number: int, register: Register) -> str:
        """Whether record ``n`` is older than the removal that group ``number`` accepted."""
        group = Order(register.order.fields[: len(register.part.group)])
        mine = group.sql({name: ref("n", name) for name in register.part.group}, "TRUE")
        theirs = group.sql(
            {name: f"a._kf_tombstone{number}.g{i}" for i, name in enumerate(register.part.group)}, "TRUE"
        )
        present = any_not_null("n", register.part.group)
        older = f"struct({', '.join(mine)}) < struct({', '.join(theirs)})"
        return f"(a._kf_tombstone{number} IS NOT NULL AND {present} AND {older})"

    def _settled(self) -> list[Settled]:
        return [rule.settle_sql("x", False) for rule in self.rules]

    def _stepped_sql(self) -> str:
        steps = {name: sql for settled in self._settled() for name, sql in settled.steps.items()}
        members = {name: ref("x", name) for name in (*self._inner_columns(), LIVE_COLUMN, REMOVED_AT)} | steps
        return f"named_struct({', '.join(f'{literal(name)}, {sql}' for name, sql in members.items())})"

    def _finished_sql(self) -> str:
        stored = [*(column.name for column in self.columns), *(bounds.carry for bounds in self.bounds)]
        outputs = {name: ref("x", name) for name in (*stored, LIVE_COLUMN, REMOVED_AT)}
        for settled in self._settled():
            outputs |= {name: sql for name, sql in settled.outputs.items() if name in outputs}
        members = [f"{literal(name)}, {sql}" for name, sql in outputs.items()]
        return f"named_struct({', '.join(members)})"


def _member(column: Column) -> str:
    """The name of a column in a log entry: by its id, so that a log outlives changes of names."""
    return f"c{column.id}"


class _Row:
    """One row while its log is replayed."""

    def __init__(self, rule: Replay) -> None:
        self.rule = rule
        self.live = False
        self.state = self._nothing()
        self.tombstones: dict[int, tuple[Any, ...]] = {}
        self.removed_at: int | None = None

    def _nothing(self) -> State:
        return {name: value for rule in self.rule.rules for name, value in rule.empty.items()}

    def fold(self, record: Record) -> None:
        """One record, in merge order (§4.4)."""
        lifted = [rule.lift(record) for rule in self.rule.rules]
        newer = {name: value for part in lifted for name, value in part.items()}
        if record.kind is RowKind.DELETE and self._removed_by(newer):
            self.removed_at = record.arrival
            return
        closed = self.closed_to(record)
        for rule in self.rule.rules:
            if rule.part.group not in closed:
                self.state.update(rule.combine(self.state, newer))
        if record.kind.add and not closed:
            self.live = True

    def closed_to(self, record: Record) -> set[tuple[str, ...]]:
        """The groups whose removal is younger than the record."""
        return {self.rule.listed[i].part.group for i in self.tombstones if self._stale(i, record)}

    def _removed_by(self, newer: State) -> bool:
        accepting = [i for i, register in enumerate(self.rule.listed) if register.newer_wins(self.state, newer)]
        if self.rule.listed and not accepting:
            return False
        self.state = self._nothing()
        self.live = False
        self.tombstones = {}
        for i in accepting:
            register = self.rule.listed[i]
            self.state.update({name: newer[name] for name in register.names})
            self.tombstones[i] = _sequence_rank(register, newer)
        return True

    def _stale(self, number: int, record: Record) -> bool:
        register = self.rule.listed[number]
        if register.part.in_group is None or not register.part.in_group.met(record):
            return False
        return _sequence_rank(register, record.values) < self.tombstones[number]


def _sequence_rank(register: Register, values: Mapping[str, Any]) -> tuple[Any, ...]:
    return Order(register.order.fields[: len(register.part.group)]).rank(values, add=True)
