"""Rules of functions that fold value by value: the state is the value itself, or a log of the records.

If records are ordered by arrival and no value is taken back, two folded values can be folded into one, and the value
is the whole state. Otherwise a later record may belong in the middle, or take back a value of an older run. Then the
state is the log of the records with their result in merge order, so that a row of a single run is shown as stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from app.core.rules.accumulators import overflow
from app.core.rules.lateness import Lateness, highest_of
from app.core.rules.log_records import LogRecords
from app.core.rules.order import Order
from app.core.rules.participation import Participation
from app.core.rules.rule import BOOLEAN, HiddenColumn, Rule, State, TotalBounds
from app.core.rules.step_function import InexactFold, StepFunction
from app.core.table.records import ARRIVAL_COLUMN, Record
from app.core.table.schema import Column
from app.core.types.datatype import DataType, Field
from app.core.types.kinds import Kind
from app.core.types.numbers import fits, range_of

BEFORE_ALL = -1  # the arrival of a settled value in a log: older than any record


@dataclass(frozen=True)
class Stepwise(Rule):
    """A step function used on a column; ``called`` names the function and its options.

    ``late``: which records its log leaves out, and what of the log settles; None if neither.
    """

    column: Column
    function: StepFunction
    order: Order
    part: Participation
    meaning: str = ""
    called: tuple[Any, ...] = ()
    late: Lateness | None = None

    @cached_property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]  # a frozen field in other rules
        return (self.column,)

    @property
    def retracts(self) -> bool:
        """Whether retracts can reach the function."""
        return not self.part.adds_only

    @property
    def takes_back(self) -> bool:
        return self.retracts

    @cached_property
    def _by_arrival(self) -> bool:
        return self.order.by_arrival

    @property
    def keeps_log(self) -> bool:
        """Whether a late record can belong before others, so that no compaction settles the whole log."""
        return not self._by_arrival

    @cached_property
    def _direct(self) -> bool:
        return self.function.associative and self._by_arrival and not self.retracts

    @cached_property
    def log(self) -> str:
        """The name of the log's column."""
        return f"_kf_log_{self.column.id}"

    @cached_property
    def _order_members(self) -> tuple[tuple[str, Column], ...]:
        return tuple((f"f{i}", field.column) for i, field in enumerate(self.order.fields))

    @cached_property
    def hidden(self) -> tuple[HiddenColumn, ...]:
        if self._direct:
            return ()
        log = HiddenColumn(self.log, DataType(Kind.ARRAY, element=self._entry_type))
        return (log, HiddenColumn(self._carry, self.function.wide)) if self.function.wide else (log,)

    @cached_property
    def _entry_type(self) -> DataType:
        """The type of a log entry: arrival, whether it adds, the order, the value."""
        members = [("t", DataType(Kind.BIGINT)), ("add", BOOLEAN)]
        members += [(member, column.type.with_nullable(True)) for member, column in self._order_members]
        members.append(("v", self.column.type.with_nullable(True)))
        fields = tuple(Field(i, name, data_type) for i, (name, data_type) in enumerate(members))
        return DataType(Kind.ROW, fields=fields)

    @property
    def _carry(self) -> str:
        return f"_kf_carry_{self.column.id}"

    @property
    def bounds(self) -> tuple[TotalBounds, ...]:
        if self.function.wide is None:
            return ()
        bounds_of_type = range_of(self.column.type)
        return (TotalBounds(self.column, self._carry, *bounds_of_type, additive=False, endless=self.function.endless),)

    def fault(self, record: Record) -> str | None:
        value = record.values[self.column.name]
        if value is None:
            return None
        if not record.kind.add and self.retracts:
            return self.function.fault(value) or self.function.retract_fault(value)
        return self.function.fault(value)

    def _entry(self, record: Record) -> State:
        order = {member: record.values[column.name] for member, column in self._order_members}
        return {"t": record.arrival, "add": record.kind.add, **order, "v": record.values[self.column.name]}

    def lift(self, record: Record) -> State:
        if not self.part.takes(record):
            return self.empty
        if self._direct:
            return {self.column.name: self.function.folded([record.values[self.column.name]])}
        return self.of_log([self._entry(record)])

    def fold_records(self, records: Sequence[Record]) -> State:
        if self._direct:
            return super().fold_records(records)
        return self.of_log([self._entry(record) for record in records if self.part.takes(record)])

    def _entries(self, state: Mapping[str, Any]) -> list[State]:
        """Return the entries to fold: the log, or the settled value in its place."""
        log = state.get(self.log)  # a row of an earlier release may have none
        if log is not None:
            return list(log)
        return self._settled_entries(state[self.column.name])

    def _settled_entries(self, value: Any) -> list[State]:
        """Return the log entries that stand for the records that were settled to ``value``."""
        order = {member: None for member, _ in self._order_members}
        return [] if value is None else [{"t": BEFORE_ALL, "add": True, **order, "v": value}]

    def combine(self, older: Mapping[str, Any], newer: Mapping[str, Any]) -> State:
        return self.combine_all((older, newer))

    def combine_all(self, states: Sequence[Mapping[str, Any]]) -> State:
        if self._direct:
            values = [state[self.column.name] for state in states if state[self.column.name] is not None]
            return {self.column.name: values[0] if len(values) == 1 else self.function.folded(values)}
        logs = [entries for state in states if (entries := self._entries(state))]
        if len(logs) == 1:
            return next({n: state.get(n) for n in self.names} for state in states if self._entries(state))
        return self.of_log([entry for log in logs for entry in log])

    def fold_log(self, records: LogRecords) -> State:
        values, entries, kinds = records.column(self.column.name), records.entries, records.kinds
        order = [(member, records.column(column.name)) for member, column in self._order_members]
        return self.of_log(
            [
                {
                    "t": entries[place][ARRIVAL_COLUMN],
                    "add": not kinds[place] & 1,
                    **{member: column[place] for member, column in order},
                    "v": values[place],
                }
                for place in self.part.places(records)
            ]
        )

    def refolded(self, state: Mapping[str, Any]) -> State:
        return super().refolded(state) if self._direct or state[self.log] is None else self.of_log(state[self.log])

    def of_log(self, log: Sequence[Mapping[str, Any]]) -> State:
        """Return the state with ``log``, without the entries that came too late, and its result."""
        if not log:
            return self.empty
        kept = self.late.on_time(log, "f0", "t") if self.late else log
        return {**self.empty, **self._total(kept), self.log: kept}

    def _total(self, log: Sequence[Mapping[str, Any]]) -> State:
        """Return the visible column, and also the total where the column cannot hold it; ``log`` is by arrival."""
        values, adds = [entry["v"] for entry in log], [entry["add"] for entry in log]
        if not self._by_arrival:
            members = {column.name: member for member, column in self._order_members}
            places = range(len(log))
            ranks = self.order.ranks(lambda name: [entry[members[name]] for entry in log], adds.__getitem__, places)
            ordered = sorted(places, key=ranks.__getitem__)
            values, adds = [values[place] for place in ordered], [adds[place] for place in ordered]
        try:
            total = self.function.folded(values, adds)
        except InexactFold:
            return {self._carry: self.function.endless}
        if self.function.wide is None or total is None or fits(self.column.type, total):
            return {self.column.name: total}
        return {self._carry: Decimal(total)}

    def settled(self, state: Mapping[str, Any]) -> State:
        kept = super().settled(state)
        if self.late is not None and kept[self.log]:
            return {**kept, self.log: self._settled_log(self.late, kept[self.log])}
        # A total outside the column is none yet: its log stays.
        return {**kept, self.log: None} if self._settles and not self._outside(state) else kept

    def highest(self, state: Mapping[str, Any]) -> Any:
        """Return the highest sequence that came to the log of ``state``; None if none did."""
        return None if self._direct else highest_of(state[self.log] or (), "f0")

    def comes_late(self, state: Mapping[str, Any], record: Record) -> bool:
        """Return whether the record comes too late for the log in ``state``."""
        late = self.late
        return late is not None and late.is_closed(self.highest(state), record.values[late.column.name])

    def _settled_log(self, late: Lateness, log: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        below, others = late.split(log, "f0")
        total = self._total(below)
        return log if self._outside(total) else [*self._settled_entries(total.get(self.column.name)), *others]

    @cached_property
    def _settles(self) -> bool:
        """Whether the value in the oldest run may replace its log: no record can come before it any more."""
        return not self._direct and self._by_arrival and not self.part.group

    def _outside(self, state: Mapping[str, Any]) -> bool:
        return self.function.wide is not None and state.get(self._carry) is not None

    def finish(self, state: Mapping[str, Any]) -> State:
        if self._outside(state):
            raise overflow(self.column, endless=state[self._carry] == self.function.endless)
        return {self.column.name: state[self.column.name]}
