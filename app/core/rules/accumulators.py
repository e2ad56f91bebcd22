"""Rules whose answer does not depend on order: sums, booleans, unions (merge-semantics §5, §9.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, reduce
from typing import Any

from app.core.errors import Unfoldable
from app.core.rules.log_records import LogRecords
from app.core.rules.participation import Participation
from app.core.rules.rule import HiddenColumn, Rule, Sql, State, TotalBounds
from app.core.rules.spark_sql import ADD_SQL, ref
from app.core.table.records import Record
from app.core.table.schema import Column
from app.core.types.datatype import DataType
from app.core.types.kinds import Family, Kind
from app.core.types.numbers import EXACT, as_float32, range_of


def overflow(column: Column, key: Mapping[str, Any] | None = None, *, endless: bool = False) -> Unfoldable:
    """A total that its column cannot hold (merge-semantics A.7); ``endless``: a quotient without end (A.9)."""
    where = f" of key {dict(key)}" if key is not None else ""
    if endless:
        message = (
            f"column {column.name!r}{where}: a retract divides its product into a quotient without end, which no "
            f"{column.type.base_sql} holds; delete the staged batch with that retract"
        )
    else:
        message = (
            f"column {column.name!r}{where}: its total is out of range for {column.type.base_sql}; "
            "delete the staged batch that exceeds it, or post a record that brings it back"
        )
    return Unfoldable(message)


def _minus(value: Any) -> Any:
    return EXACT.minus(value) if isinstance(value, Decimal) else -value


def _plus(a: Any, b: Any) -> Any:
    return EXACT.add(a, b) if isinstance(a, Decimal) else a + b


@dataclass(frozen=True)
class Sum(Rule):
    """``sum``: adds are added, retracts subtracted, nulls skipped.

    A total outside the column's type is kept in the hidden column ``_kf_carry_*`` until later records bring it back, so
    that the answer does not depend on where the history was cut (§5.1: check once, at the end of the fold).
    """

    column: Column
    part: Participation

    @cached_property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]  # a frozen field in other rules
        return (self.column,)

    @cached_property
    def _wide_type(self) -> DataType:
        kind = self.column.type.kind
        if self.column.type.family is Family.FLOATING:
            return DataType(Kind.DOUBLE)
        if kind is Kind.DECIMAL:
            return DataType(Kind.DECIMAL, precision=38, scale=self.column.type.scale)
        return DataType(Kind.DECIMAL, precision=38, scale=0) if kind is Kind.BIGINT else DataType(Kind.BIGINT)

    @cached_property
    def wide(self) -> str:
        """The Spark type in which to sum."""
        return self._wide_type.spark

    @cached_property
    def _carry(self) -> str | None:
        return None if self._wide_type.kind is Kind.DOUBLE else f"_kf_carry_{self.column.id}"

    @cached_property
    def hidden(self) -> tuple[HiddenColumn, ...]:
        return (HiddenColumn(self._carry, self._wide_type),) if self._carry else ()

    def of_total(self, total: Any) -> State:
        """The state whose sum is ``total``, a number of any range; None if nothing was summed."""
        if total is not None and self.column.type.kind is Kind.FLOAT:
            total = as_float32(total)
        inside = total is None or self._holds(total)
        state: State = {self.column.name: total if inside else None}
        if self._carry:
            state[self._carry] = None if inside else Decimal(total) if self._wide_type.kind is Kind.DECIMAL else total
        return state

    @cached_property
    def _range(self) -> tuple[Any, Any]:
        low, high = range_of(self.column.type)
        return (int(low), int(high)) if self.column.type.family is Family.INTEGER else (low, high)

    def _holds(self, total: Any) -> bool:
        """Whether the column can hold a total; FLOAT and DOUBLE take any (§5.1)."""
        return not self._carry or bool(self._range[0] <= total <= self._range[1])

    def total(self, state: Mapping[str, Any]) -> Any:
        """The sum, wherever the state keeps it."""
        carried = state[self._carry] if self._carry else None
        if carried is None:
            return state[self.column.name]
        return int(carried) if self.column.type.kind is not Kind.DECIMAL else carried

    @property
    def bounds(self) -> tuple[TotalBounds, ...]:
        """The range that a total must end in, and where a state keeps one that left it; none where any total is
        legal.
        """
        return (TotalBounds(self.column, self._carry, *range_of(self.column.type)),) if self._carry else ()

    def finish(self, state: Mapping[str, Any]) -> State:
        if self._carry and state[self._carry] is not None:
            raise overflow(self.column)
        return super().finish(state)

    def lift(self, record: Record) -> State:
        if not self.part.takes(record):
            return self.empty
        value = record.values[self.column.name]
        if record.kind.add:
            return {**self.empty, self.column.name: value}  # a value of the column is inside its type
        return self.of_total(_minus(value))

    def combine(self, older: Mapping[str, Any], newer: Mapping[str, Any]) -> State:
        totals = [total for total in (self.total(older), self.total(newer)) if total is not None]
        return self.of_total(_plus(*totals) if len(totals) == 2 else totals[0] if totals else None)

    def fold_log(self, records: LogRecords) -> State:
        values, kinds = records.column(self.column.name), records.kinds
        places = self.part.places(records)
        signed = [_minus(values[place]) if kinds[place] & 1 else values[place] for place in places]
        if not signed:
            return self.empty
        if self.column.type.kind is Kind.FLOAT:
            return self.of_total(reduce(lambda a, b: as_float32(a + b), signed))
        return self.of_total(sum(signed) if isinstance(signed[0], int) else reduce(_plus, signed))

    def of_total_sql(self, total: str) -> Sql:
        """As ``of_total``, over a number's SQL text."""
        spark_type = self.column.type.spark
        if not self._carry:
            return {self.column.name: f"CAST({total} AS {spark_type})"}
        inside = f"TRY_CAST({total} AS {spark_type})"
        return {self.column.name: inside, self._carry: f"IF({inside} IS NULL, CAST({total} AS {self.wide}), NULL)"}

    def _signed_sql(self, wide: str) -> str:
        value = f"CAST({ref('r', self.column.name)} AS {wide})"
        return value if self.part.adds_only else f"IF({ADD_SQL}, {value}, 0 - {value})"

    def fold_sql(self, also: str) -> tuple[Sql, Sql]:
        # A narrower input leaves Spark's decimal sum room for ten more digits.
        wide = "DECIMAL(20,0)" if self.column.type.kind is Kind.BIGINT else self.wide
        condition = self.part.sql(also)
        total = f"_kf_total_{self.column.id}"
        return {total: f"sum({self._signed_sql(wide)}) FILTER (WHERE {condition})"}, self.of_total_sql(total)

    def lift_sql(self) -> Sql:
        condition = self.part.sql()
        return self.of_total_sql(f"IF({condition}, {self._signed_sql(self.wide)}, NULL)")

    def total_sql(self, state: str) -> str:
        """As ``total``, in the wide type."""
        value = f"CAST({ref(state, self.column.name)} AS {self.wide})"
        return f"coalesce({ref(state, self._carry)}, {value})" if self._carry else value

    @property
    def combines_in_turn(self) -> bool:
        return True

    def combine_sql(self, older: str, newer: str) -> Sql:
        a, b = self.total_sql(older), self.total_sql(newer)
        return self.of_total_sql(f"coalesce({a} + {b}, {a}, {b})")


@dataclass(frozen=True)
class Union(Rule):
    """An associative and commutative function of one column that skips nulls and takes no retracts.

    ``called`` names the function and its options. ``folded`` (with ``{vs}``, what ``fold`` gave) is what else a fold
    needs; ``shown`` turns the state into the visible value, ``unreadable`` tells why a value is none of the function's.
    ``join`` is its Python meaning; ``fold`` (with ``{v}``) and ``join_sql`` (with ``{a}``, ``{b}``, both not null) are
    its Spark meaning. ``alike`` says that both give the very same bytes, which no sketch's do.
    """

    column: Column
    join: Callable[[Any, Any], Any]
    fold: str
    join_sql: str
    part: Participation
    meaning: str = ""
    folded: str = "{vs}"
    called: tuple[Any, ...] = ()
    shown: Callable[[Any], Any] = lambda value: value
    unreadable: Callable[[Any], str | None] = lambda _: None
    alike: bool = False

    @cached_property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]  # a frozen field in other rules
        return (self.column,)

    @property
    def hidden(self) -> tuple[HiddenColumn, ...]:
        return ()

    @property
    def runs_python(self) -> bool:
        """Whether Spark joins by a function of ``spark_jobs.bitmaps``, which it does not run inside a lambda."""
        return "kf_rbm" in self.join_sql

    def fault(self, record: Record) -> str | None:
        value = record.values[self.column.name]
        return None if value is None else self.unreadable(value)

    def finish(self, state: Mapping[str, Any]) -> State:
        value = state[self.column.name]
        return {self.column.name: None if value is None else self.shown(value)}

    def lift(self, record: Record) -> State:
        return {self.column.name: record.values[self.column.name] if self.part.takes(record) else None}

    def combine(self, older: Mapping[str, Any], newer: Mapping[str, Any]) -> State:
        a, b = older[self.column.name], newer[self.column.name]
        return {self.column.name: b if a is None else a if b is None else self.join(a, b)}

    def fold_log(self, records: LogRecords) -> State:
        values = records.column(self.column.name)
        found = [values[place] for place in self.part.places(records)]
        return {self.column.name: reduce(self.join, found) if found else None}

    def fold_sql(self, also: str) -> tuple[Sql, Sql]:
        joined = f"_kf_joined_{self.column.id}"
        aggregate = f"{self.fold.format(v=ref('r', self.column.name))} FILTER (WHERE {self.part.sql(also)})"
        return {joined: aggregate}, {self.column.name: self.folded.format(vs=joined)}

    def lift_sql(self) -> Sql:
        condition = self.part.sql()
        return {self.column.name: f"IF({condition}, {ref('r', self.column.name)}, NULL)"}

    @property
    def combines_in_turn(self) -> bool:
        return not self.runs_python

    def combine_sql(self, older: str, newer: str) -> Sql:
        a, b = ref(older, self.column.name), ref(newer, self.column.name)
        joined = self.join_sql.format(a=a, b=b)
        return {self.column.name: f"CASE WHEN {a} IS NULL THEN {b} WHEN {b} IS NULL THEN {a} ELSE {joined} END"}
