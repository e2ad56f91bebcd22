"""The rule of rows that a delete can remove in the middle of their history: the state is the log of their records.

Other rows need no log: a -D removes every record that arrived before it. Two options need one. With a sequence field
a -D removes the records that sort before it, even those that arrive later. With sequence groups the effect of a -D
depends on the sequences of all groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from app.core.rules.lateness import Lateness, highest_of
from app.core.rules.log_records import member_of
from app.core.rules.order import Order
from app.core.rules.register import Register
from app.core.rules.replays.replayed_row import TOMBSTONE, ReplayedRow
from app.core.rules.row import LIVE_COLUMN, REMOVED_AT
from app.core.rules.rule import BOOLEAN, HiddenColumn, Rule, State, TotalBounds
from app.core.table.named_columns import ALL_NAMED, words_naming, words_of
from app.core.table.records import ARRIVAL_COLUMN, KIND_COLUMN, Record, RowKind
from app.core.table.schema import Column
from app.core.types.datatype import DataType, Field
from app.core.types.kinds import Kind

LOG = "_kf_log"
BASE = "_kf_base"


@dataclass(frozen=True)
class Replay(Rule):
    """The rule of all columns of a row: it replays the row's log in merge order with ``rules``.

    ``listed`` are the sequence groups that can remove the row: a -D that one of them accepts does. If it is empty,
    every -D does. ``logs_names`` means that each entry of the log holds which columns its record names.

    ``late`` bounds how late a record may come. The log leaves later records out, and entries that no record can come
    before any more are settled: the base replaces them. None if there is no such bound.
    """

    columns: tuple[Column, ...]
    rules: tuple[Rule, ...]
    order: Order
    listed: tuple[Register, ...] = ()
    logs_names: bool = False
    late: Lateness | None = None

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The names of the bit masks of a log entry that say which columns its record names; none without
        ``logs_names``.
        """
        return words_of(self.columns) if self.logs_names else ()

    @cached_property
    def hidden(self) -> tuple[HiddenColumn, ...]:
        log = HiddenColumn(LOG, DataType(Kind.ARRAY, element=self.entry_type))
        carries = {bounds.carry for bounds in self.bounds}
        carried = [hidden for rule in self.rules for hidden in rule.hidden if hidden.name in carries]
        base = [HiddenColumn(BASE, self.base_type)] if self.settles else []
        return (HiddenColumn(LIVE_COLUMN, BOOLEAN), log, *carried, *base)

    @property
    def log(self) -> str:
        """The name of the log's column."""
        return LOG

    @property
    def base(self) -> str:
        """The name of the column of the base: the state that replaces the settled part of the log."""
        return BASE

    @property
    def settles(self) -> bool:
        """Whether a base may replace the log of the oldest run, or a part of it: no record can come before it any
        more.
        """
        return self.order.by_arrival or self.late is not None

    @cached_property
    def base_type(self) -> DataType:
        """The type of the base: the state of every rule after the settled log, and its last removal."""
        columns = [Field(c.id, member_of(c), c.type.with_nullable(True)) for rule in self.rules for c in rule.columns]
        hidden = [Field(_id_of(h.name), h.name, h.type) for rule in self.rules for h in rule.hidden]
        of_row = [(LIVE_COLUMN, BOOLEAN), (REMOVED_AT, DataType(Kind.BIGINT))]
        of_row += [(f"{TOMBSTONE}{i}", _tombstone_type(register)) for i, register in enumerate(self.listed)]
        fields = (*columns, *hidden, *(Field(_id_of(name), name, data_type) for name, data_type in of_row))
        return DataType(Kind.ROW, fields=fields)

    @cached_property
    def entry_type(self) -> DataType:
        """The type of a log entry: arrival, kind, the named columns as bit masks, and the columns by id."""
        of_record = (Field(-2, ARRIVAL_COLUMN, DataType(Kind.BIGINT)), Field(-1, KIND_COLUMN, DataType(Kind.TINYINT)))
        words = (Field(_id_of(word), word, DataType(Kind.BIGINT)) for word in self.words)
        fields = (*of_record, *words, *(Field(c.id, member_of(c), c.type.with_nullable(True)) for c in self.columns))
        return DataType(Kind.ROW, fields=fields)

    @cached_property
    def bounds(self) -> tuple[TotalBounds, ...]:
        """The bounds of the inner rules. Totals of runs do not add up: a run may remove what an older one added."""
        return tuple(replace(bounds, additive=False) for rule in self.rules for bounds in rule.bounds)

    def fault(self, record: Record) -> str | None:
        return next((fault for rule in self.rules if (fault := rule.fault(record)) is not None), None)

    def lift(self, record: Record) -> State:
        return self.fold_records((record,))

    def fold_records(self, records: Sequence[Record]) -> State:
        return self._replayed(None, [self._entry(record) for record in records])

    def _entry(self, record: Record) -> State:
        values = {member: record.values[name] for name, member in self.members.items()}
        words = words_naming(self.columns, record.named) if self.logs_names else {}
        return {ARRIVAL_COLUMN: record.arrival, KIND_COLUMN: int(record.kind), **words, **values}

    @cached_property
    def members(self) -> Mapping[str, str]:
        """The name of each column in a log entry, by column name."""
        return {column.name: member_of(column) for column in self.columns}

    def combine(self, older: Mapping[str, Any], newer: Mapping[str, Any]) -> State:
        return self.combine_all((older, newer))

    def combine_all(self, states: Sequence[Mapping[str, Any]]) -> State:
        known = [state for state in states if state[LOG] or state.get(BASE)]
        if len(known) == 1:
            return {name: known[0].get(name) for name in self.names}
        # Only the oldest run settles.
        return self._replayed(states[0].get(BASE), [entry for state in known for entry in state[LOG] or ()])

    def _replayed(self, base: Mapping[str, Any] | None, log: Sequence[Mapping[str, Any]]) -> State:
        """Return the state with this base and log: the folded columns, and the log without records that came too
        late.
        """
        log = self.late.on_time(log, self._sequence(self.late), ARRIVAL_COLUMN) if self.late else log
        row = ReplayedRow(self, base, log)
        if not self.listed:
            log = row.without_removed(log)
        inner = row.state
        folded = {name: inner[name] for name in (*self._visible, *(bounds.carry for bounds in self.bounds))}
        stored = {LIVE_COLUMN: row.live, LOG: log, BASE: base} if self.settles else {LIVE_COLUMN: row.live, LOG: log}
        return {**folded, **stored}

    def _sequence(self, late: Lateness) -> str:
        return self.members[late.column.name]

    @cached_property
    def _visible(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def row(self, state: Mapping[str, Any]) -> ReplayedRow:
        """Return the row of ``state``, replayed again."""
        return ReplayedRow(self, state.get(BASE), state[LOG] or ())

    def settled(self, state: Mapping[str, Any]) -> State:
        kept = super().settled(state)
        if not self.settles:
            return kept
        log = state[LOG] or ()
        if not log:
            return kept
        below, others = self.late.split(log, self._sequence(self.late)) if self.late else (log, [])
        row = ReplayedRow(self, state.get(BASE), below)
        # Keep the log of a total outside its column's type: later entries may bring it back. Keep the -D of a removed
        # row: ``removal`` may have to read it from the log.
        outside = any(row.state[bounds.carry] is not None for bounds in self.bounds)
        stays = outside or (self.late is not None and not row.live)
        return kept if stays else {**kept, LOG: others, BASE: row.base}

    def refolded(self, state: Mapping[str, Any]) -> State:
        return self._replayed(state.get(BASE), state[LOG] or ())

    def inner_state(self, state: Mapping[str, Any]) -> State:
        """Return the states of the inner rules after the log of ``state``."""
        return self.row(state).state

    def removal(self, state: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return a log entry with the effect of the last -D that removed the row of ``state``; None if none did."""
        row = self.row(state)
        if row.removed_at is None:
            return None
        nothing = {
            ARRIVAL_COLUMN: row.removed_at,
            KIND_COLUMN: int(RowKind.DELETE),
            **dict.fromkeys(self.members.values()),
        }
        entry = next((entry for entry in state[LOG] or () if entry[ARRIVAL_COLUMN] == row.removed_at), nothing)
        # Groups that did not accept the -D get null sequences: it must not count for them.
        accepted = {
            self.members[name]: (row.tombstones.get(i) or {}).get(f"g{place}")
            for i, register in enumerate(self.listed)
            for place, name in enumerate(register.part.group)
        }
        return {**entry, **accepted}

    def removed(self, removal: Mapping[str, Any]) -> State:
        """Return the state of a row whose log has only the entry of its last removal."""
        return self._replayed(None, [{**removal, **dict.fromkeys(self.words, ALL_NAMED)}])

    def named_columns(self, state: Mapping[str, Any]) -> frozenset[str]:
        inner = self.inner_state(state)
        return frozenset().union(*(rule.named_columns(inner) for rule in self.rules))

    def closed_groups(self, state: Mapping[str, Any], record: Record) -> set[tuple[str, ...]]:
        """Return the groups that ignore ``record`` because a removal of theirs is newer."""
        return self.row(state).closed_to(record)

    def highest(self, state: Mapping[str, Any]) -> Any:
        """Return the highest value in the log of ``state`` of the column that ``late`` compares; None if it has
        none.
        """
        return highest_of(state[LOG] or (), self._sequence(self.late)) if self.late is not None else None

    def comes_late(self, state: Mapping[str, Any], record: Record) -> bool:
        """Return whether the record comes too late to change ``state``."""
        late = self.late
        return late is not None and late.is_closed(self.highest(state), record.values[late.column.name])

    def removes(self, inner: Mapping[str, Any] | None, record: Record) -> bool:
        """Return whether ``record`` removes a row; ``inner`` are the states of its rules, None for a new row."""
        if record.kind is not RowKind.DELETE:
            return False
        before = inner if inner is not None else {n: v for rule in self.rules for n, v in rule.empty.items()}
        lifted = {name: value for rule in self.rules for name, value in rule.lift(record).items()}
        return not self.listed or any(register.newer_wins(before, lifted) for register in self.listed)

    def finish(self, state: Mapping[str, Any]) -> State:
        return {name: value for rule in self.rules for name, value in rule.finish(state).items()}


def _id_of(name: str) -> int:
    """Return the field id of a hidden column in a base. It follows from the name, because columns come and go."""
    return -1 - int.from_bytes(name.encode())


def _tombstone_type(register: Register) -> DataType:
    types = {column.name: column.type.with_nullable(True) for column in register.columns}
    return DataType(Kind.ROW, fields=tuple(Field(i, f"g{i}", types[n]) for i, n in enumerate(register.part.group)))
