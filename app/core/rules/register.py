"""The register: the rule that keeps the columns of one record, the latest or the first of an order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from app.core.rules.log_records import LogRecords
from app.core.rules.order import Order, OrderField
from app.core.rules.participation import EVERY_RECORD, Participation
from app.core.rules.row import LIVE_COLUMN
from app.core.rules.rule import BOOLEAN, HiddenColumn, Rule, State
from app.core.table.records import Record
from app.core.table.schema import Column
from app.core.types.datatype import DataType, Field
from app.core.types.kinds import Kind

OrderPlace = tuple[OrderField, str, str | None]
"""A field of an order, the state column that has its value, and the member of that where it is a ROW."""


class Pick(Enum):
    """Which record of an order a register keeps."""

    LATEST = "latest"
    FIRST = "first"


@dataclass(frozen=True)
class Register(Rule):
    """Columns that move together: the values of the latest (or first) record in ``order`` that takes part.

    A retract (-U, -D) that takes part is kept like an add; if it ``clears``, its values are null, but for its order
    fields. ``keeps_kind``: the register is the whole row and also remembers, as ``_kf_live``, whether the kept record
    is an add (deduplicate).
    """

    columns: tuple[Column, ...]
    order: Order
    pick: Pick = Pick.LATEST
    part: Participation = EVERY_RECORD
    clears: bool = False
    keeps_kind: bool = False

    @cached_property
    def _own(self) -> frozenset[str]:
        return frozenset(column.name for column in self.columns)

    @cached_property
    def _stored_order(self) -> tuple[tuple[str, str, DataType], ...]:
        """(member, column, type) of the order fields that the visible columns do not carry."""
        fields = [field.column for field in self.order.fields if field.column.name not in self._own]
        return tuple((f"f{i}", column.name, column.type) for i, column in enumerate(fields))

    @cached_property
    def _stores_flag(self) -> bool:
        return self.order.flag and not self.keeps_kind

    @cached_property
    def _order_column(self) -> str | None:
        return f"_kf_order_{self._id}" if self._stored_order or self._stores_flag else None

    @cached_property
    def _seen_column(self) -> str | None:
        every_record = self.part == EVERY_RECORD
        seen_by_value = self.part.skips_null and not self.clears
        seen_by_group = bool(self.part.group) and set(self.part.group) <= self._own
        needed = not (self._order_column or every_record or seen_by_value or seen_by_group)
        return f"_kf_seen_{self._id}" if needed else None

    @cached_property
    def _id(self) -> int:
        return self.columns[0].id if self.columns else 0

    @cached_property
    def hidden(self) -> tuple[HiddenColumn, ...]:
        hidden = []
        if self._order_column:
            members = [(member, data_type.with_nullable(True)) for member, _, data_type in self._stored_order]
            members += [("add", BOOLEAN)] if self._stores_flag else []
            fields = tuple(Field(i, member, data_type) for i, (member, data_type) in enumerate(members))
            hidden.append(HiddenColumn(self._order_column, DataType(Kind.ROW, fields=fields)))
        if self._seen_column:
            hidden.append(HiddenColumn(self._seen_column, BOOLEAN))
        if self.keeps_kind:
            hidden.append(HiddenColumn(LIVE_COLUMN, BOOLEAN))
        return tuple(hidden)

    @cached_property
    def order_places(self) -> Sequence[OrderPlace]:
        """Where the state has the place in the order of the record that it holds."""
        stored = {name: member for member, name, _ in self._stored_order}
        hidden = self._order_column or ""
        named = [(field, field.column.name) for field in self.order.fields]
        return [(field, hidden if name in stored else name, stored.get(name)) for field, name in named]

    @cached_property
    def kept_on_clear(self) -> frozenset[str]:
        """The columns that a clearing retract sets to its own values: those of the order."""
        return frozenset({*self.part.group, *(field.column.name for field in self.order.fields)}) & self._own

    @cached_property
    def kept(self) -> frozenset[str]:
        return self._own - self.part.looked_at - {field.column.name for field in self.order.fields}

    def lift(self, record: Record) -> State:
        state = self.empty
        if not self.part.takes(record):
            return state
        cleared = self.clears and not record.kind.add
        for name in self.kept_on_clear if cleared else self._own:
            state[name] = record.values[name]
        if self._order_column:
            order = {member: record.values[name] for member, name, _ in self._stored_order}
            state[self._order_column] = {**order, "add": record.kind.add} if self._stores_flag else order
        if self._seen_column:
            state[self._seen_column] = True
        if self.keeps_kind:
            state[LIVE_COLUMN] = record.kind.add
        return state

    @property
    def counts_null(self) -> bool:
        """Whether a record that says nothing of the columns is kept like any other, as one that sets them to null."""
        return not (self.part.skips_null or self.part.skips_unnamed)

    def read_null(self, row: Mapping[str, Any], latest: Register | None) -> State:
        """Return the state of records that came before the columns did and read null there.

        ``row`` is the state of their row. ``latest`` is a register of the same order that holds its latest record; None
        where arrival alone decides. No register holds the place of the first one: it is before all that has a sequence.
        """
        state = self.empty
        if self._seen_column:
            state[self._seen_column] = True
        if self._order_column and latest is not None and latest.named_columns(row):
            first = self.pick is Pick.FIRST
            values = {} if first else latest.order_values(row)
            order = {member: values.get(name) for member, name, _ in self._stored_order}
            add = not first and self.order.flag and bool(latest.rank(row)[-1])
            state[self._order_column] = {**order, "add": add} if self._stores_flag else order
        return state

    def _seen(self, state: Mapping[str, Any]) -> bool:
        if self._order_column:
            return state[self._order_column] is not None
        if self._seen_column:
            return bool(state[self._seen_column])
        if self.part.skips_null:
            return state[self.columns[0].name] is not None
        return not self.part.group or any(state[name] is not None for name in self.part.group)

    def named_columns(self, state: Mapping[str, Any]) -> frozenset[str]:
        return self._own if self._seen(state) else frozenset()

    def order_values(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of the order's columns in the record that ``state`` holds."""
        return {
            field.column.name: state[name] if member is None else self._stored(state).get(member)
            for field, name, member in self.order_places
        }

    def _stored(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of the order that the state stores outside its visible columns; empty if no record was
        seen.
        """
        stored: Mapping[str, Any] | None = state[self._order_column] if self._order_column else None
        return {} if stored is None else stored

    def rank(self, state: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the place in the order of the record that ``state`` holds."""
        add = self.order.flag and (self._stored(state)["add"] if self._stores_flag else bool(state.get(LIVE_COLUMN)))
        return self.order.rank(self.order_values(state), add)

    def newer_wins(self, older: Mapping[str, Any], newer: Mapping[str, Any]) -> bool:
        """Return whether ``combine`` keeps the newer state; equal order goes to the later arrival."""
        if not self._seen(newer):
            return False
        if not self._seen(older):
            return True
        later = self.rank(newer) >= self.rank(older)
        return later if self.pick is Pick.LATEST else not later

    def combine(self, older: Mapping[str, Any], newer: Mapping[str, Any]) -> State:
        winner = newer if self.newer_wins(older, newer) else older
        return {name: winner[name] for name in self.names}

    def combine_all(self, states: Sequence[Mapping[str, Any]]) -> State:
        if not self.order.by_arrival:
            return super().combine_all(states)
        in_turn = states if self.pick is Pick.FIRST else reversed(states)
        winner = next((state for state in in_turn if self._seen(state)), states[0])
        return {name: winner.get(name) for name in self.names}

    def fold_log(self, records: LogRecords) -> State:
        places = self.part.places(records)
        if not places:
            return self.empty
        ranks = records.ranks(self.order, places)
        latest = self.pick is Pick.LATEST
        if ranks is None:
            return self.lift(records.record(places[-1 if latest else 0]))
        # Of equal ranks the latest record wins, or the first one.
        best = max(ranks) if latest else min(ranks)
        winner = len(ranks) - 1 - ranks[::-1].index(best) if latest else ranks.index(best)
        return self.lift(records.record(places[winner]))
