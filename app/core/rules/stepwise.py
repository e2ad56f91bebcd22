"""Rules of functions that fold value by value: the state is the value itself, or the log of what is to be folded.

Where the order of records is their arrival and nothing is taken back, the fold of two folded values is the fold of all
(merge-semantics §9.1), and the value is the whole state. Otherwise records that come later may belong in the middle,
or take back what an older run holds: then the state is the log of the records, folded in merge order when the row is
read (§9.4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, reduce
from typing import Any

from app.core.rules.accumulators import overflow
from app.core.rules.order import Order
from app.core.rules.participation import Participation
from app.core.rules.rule import BOOLEAN, HiddenColumn, Rule, Settled, Sql, State, TotalBounds
from app.core.rules.spark_sql import ADD_SQL, ref, sorted_sql
from app.core.table.records import ARRIVAL_COLUMN, Record
from app.core.table.schema import Column
from app.core.types.datatype import DataType, Field
from app.core.types.kinds import Kind
from app.core.types.numbers import fits, range_of

BEFORE_ALL = -1  # the arrival of a settled value in a log: older than any record


class InexactFold(ArithmeticError):
    """A step whose result no column can hold, such as a decimal quotient without end."""


@dataclass(frozen=True)
class StepFunction:
    """A function of one column, one step per record.

    ``add`` and ``retract`` are steps in Python: (accumulated or None, value that is not None) to accumulated.
    ``add_sql`` and ``retract_sql`` are the same as Spark SQL over the texts of both. ``associative``: the step also
    joins two accumulated values (adds only). ``fault`` and ``retract_fault`` tell why a value can never be folded.
    ``wide``: the type in which to accumulate, checked against the column's when the row is read; None where the
    column's own will do. ``inexact``: the SQL value of ``wide`` that stands for a step that failed (``InexactFold`` in
    Python).
    """

    add: Callable[[Any, Any], Any]
    add_sql: Callable[[str, str], str]
    retract: Callable[[Any, Any], Any] | None = None
    retract_sql: Callable[[str, str], str] | None = None
    associative: bool = True
    fault: Callable[[Any], str | None] = lambda _: None
    retract_fault: Callable[[Any], str | None] = lambda _: None
    wide: DataType | None = None
    inexact: str | None = None


@dataclass(frozen=True)
class Stepwise(Rule):
    """A step function used on a column; ``called`` names the function and its options."""

    column: Column
    function: StepFunction
    order: Order
    part: Participation
    meaning: str = ""
    called: tuple[Any, ...] = ()

    @cached_property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]  # a frozen field in other rules
        return (self.column,)

    @property
    def retracts(self) -> bool:
        """Whether retracts can reach the function."""
        return not self.part.adds_only

    @cached_property
    def _by_arrival(self) -> bool:
        return self.order.by_arrival

    @cached_property
    def _direct(self) -> bool:
        return self.function.associative and self._by_arrival and not self.retracts

    @cached_property
    def _log(self) -> str:
        return f"_kf_log_{self.column.id}"

    @cached_property
    def _order_members(self) -> tuple[tuple[str, Column], ...]:
        return tuple((f"f{i}", field.column) for i, field in enumerate(self.order.fields))

    @cached_property
    def hidden(self) -> tuple[HiddenColumn, ...]:
        if self._direct:
            return ()
        members = [("t", DataType(Kind.BIGINT)), ("add", BOOLEAN)]
        members += [(member, column.type.with_nullable(True)) for member, column in self._order_members]
        members.append(("v", self.column.type.with_nullable(True)))
        fields = tuple(Field(i, name, data_type) for i, (name, data_type) in enumerate(members))
        log = HiddenColumn(self._log, DataType(Kind.ARRAY, element=DataType(Kind.ROW, fields=fields)))
        return (log, HiddenColumn(self._carry, self.function.wide)) if self.function.wide else (log,)

    @property
    def _carry(self) -> str:
        return f"_kf_carry_{self.column.id}"

    @property
    def bounds(self) -> tuple[TotalBounds, ...]:
        if self.function.wide is None:
            return ()
        endless = range_of(self.function.wide)[1] if self.function.inexact else None  # what ``inexact`` stands for
        own = range_of(self.column.type)
        return (TotalBounds(self.column, self._carry, *own, additive=False, endless=endless),)

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
            return {self.column.name: self.function.add(None, record.values[self.column.name])}
        return {**self.empty, self._log: [self._entry(record)]}

    def _entries(self, state: Mapping[str, Any]) -> list[State]:
        """What is to be folded: the log, or the settled value in its place."""
        if state[self._log] is not None:
            return list(state[self._log])
        value = state[self.column.name]
        order = {member: None for member, _ in self._order_members}
        return [] if value is None else [{"t": BEFORE_ALL, "add": True, **order, "v": value}]

    def combine(self, older: Mapping[str, Any], newer: Mapping[str, Any]) -> State:
        if self._direct:
            a, b = older[self.column.name], newer[self.column.name]
            return {self.column.name: b if a is None else a if b is None else self.function.add(a, b)}
        return {**self.empty, self._log: self._entries(older) + self._entries(newer)}

    def finish(self, state: Mapping[str, Any]) -> State:
        if self._direct or state[self._log] is None:
            return {self.column.name: state[self.column.name]}
        try:
            value = self._total(state)
        except InexactFold as error:
            raise overflow(self.column, endless=True) from error
        if self._outside(value):
            raise overflow(self.column)
        return {self.column.name: value}

    def carried(self, state: Mapping[str, Any]) -> State:
        if self.function.wide is None:
            return {}
        try:
            total = self._total(state)
        except InexactFold:
            return {self._carry: self.bounds[0].endless}
        return {self._carry: Decimal(total) if self._outside(total) else None}

    def _total(self, state: Mapping[str, Any]) -> Any:
        """The fold of what ``state`` holds; raises ``InexactFold``."""
        return reduce(self._step, sorted(self._entries(state), key=self._rank), None)

    def _outside(self, total: Any) -> bool:
        return self.function.wide is not None and total is not None and not fits(self.column.type, total)

    def _rank(self, entry: Mapping[str, Any]) -> tuple[Any, ...]:
        values = {column.name: entry[member] for member, column in self._order_members}
        return (*self.order.rank(values, entry["add"]), entry["t"])

    def _step(self, accumulated: Any, entry: Mapping[str, Any]) -> Any:
        if entry["add"]:
            return self.function.add(accumulated, entry["v"])
        assert self.function.retract is not None, "a retract that it cannot take is refused when it is posted"
        return None if accumulated is None else self.function.retract(accumulated, entry["v"])

    def _entry_sql(self) -> str:
        members = [f"'t', r.{ARRIVAL_COLUMN}", f"'add', {ADD_SQL}"]
        members += [f"'{member}', {ref('r', column.name)}" for member, column in self._order_members]
        return f"named_struct({', '.join(members)}, 'v', {ref('r', self.column.name)})"

    def _log_type(self) -> str:
        return self.hidden[0].type.spark

    def fold_sql(self, also: str) -> tuple[Sql, Sql]:
        found = f"_kf_found_{self.column.id}"
        aggregate = f"collect_list({self._entry_sql()}) FILTER (WHERE {self.part.sql(also)})"
        by_arrival = sorted_sql(found, ["{e}.t"])
        if self._direct:
            return {found: aggregate}, {self.column.name: self._replay_sql(by_arrival)}
        log = f"IF(size({found}) = 0, NULL, {by_arrival})"
        return {found: aggregate}, self._unsettled_sql(log)

    def lift_sql(self) -> Sql:
        condition = self.part.sql()
        if self._direct:
            first = self._add_sql("NULL", ref("r", self.column.name))
            return {self.column.name: f"IF({condition}, {first}, NULL)"}
        return self._unsettled_sql(f"IF({condition}, array({self._entry_sql()}), NULL)")

    def _unsettled_sql(self, log: str) -> Sql:
        return {**dict.fromkeys(self.names, "NULL"), self._log: log}

    def _entries_sql(self, state: str) -> str:
        value, log, log_type = ref(state, self.column.name), ref(state, self._log), self._log_type()
        order = "".join(f"'{member}', NULL, " for member, _ in self._order_members)
        settled = f"array(named_struct('t', {BEFORE_ALL}L, 'add', TRUE, {order}'v', {value}))"
        return f"coalesce({log}, CAST(IF({value} IS NULL, array(), {settled}) AS {log_type}))"

    def combine_sql(self, older: str, newer: str) -> Sql:
        a, b = ref(older, self.column.name), ref(newer, self.column.name)
        if self._direct:
            joined = self._add_sql(a, b)
            return {self.column.name: f"CASE WHEN {a} IS NULL THEN {b} WHEN {b} IS NULL THEN {a} ELSE {joined} END"}
        log = f"concat({self._entries_sql(older)}, {self._entries_sql(newer)})"
        return self._unsettled_sql(log)

    def settle_sql(self, state: str, oldest: bool) -> Settled:
        if self._direct:
            return Settled()
        log = ref(state, self._log)
        step = f"_kf_total_{self.column.id}"
        total = f"{state}.{step}"
        replayed = f"IF({log} IS NULL, {ref(state, self.column.name)}, {self._finish_sql(log)})"
        # Below the oldest run nothing can come any more, so the folded value stands for the log.
        settled = oldest and self._by_arrival and not self.part.group
        if self.function.wide is None:
            return Settled({step: replayed}, {self.column.name: total, self._log: "NULL" if settled else log})
        value = f"TRY_CAST({total} AS {self.column.type.spark})"
        if self.function.inexact:
            value = f"IF({total} = {self.function.inexact}, NULL, {value})"
        outside = f"IF({value} IS NULL, {total}, NULL)"
        kept = f"IF({value} IS NULL, {log}, NULL)" if settled else log
        return Settled({step: replayed}, {self.column.name: value, self._log: kept, self._carry: outside})

    def _finish_sql(self, log: str) -> str:
        if self._by_arrival:
            return self._replay_sql(log)
        reference = {column.name: f"{{e}}.{member}" for member, column in self._order_members}
        return self._replay_sql(sorted_sql(log, [*self.order.sql(reference, "{e}.add"), "{e}.t"]))

    def _add_sql(self, accumulated: str, value: str) -> str:
        spark_type = self.column.type.spark
        return f"CAST({self.function.add_sql(f'CAST({accumulated} AS {spark_type})', value)} AS {spark_type})"

    def _replay_sql(self, entries: str) -> str:
        spark_type = (self.function.wide or self.column.type).spark
        step = self.function.add_sql("a", "e.v")
        if self.retracts and self.function.retract_sql:
            step = f"IF(e.add, {step}, IF(a IS NULL, NULL, {self.function.retract_sql('a', 'e.v')}))"
        return f"aggregate({entries}, CAST(NULL AS {spark_type}), (a, e) -> CAST({step} AS {spark_type}))"
