"""One key folded record by record, with the change of each column: what simulations and explanations answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from app.core.errors import KeyfoldError
from app.core.plan.explaining.explanations import Reason, reasons
from app.core.plan.merging.evolution import renamed
from app.core.plan.merging.fold import combine, finish, lift
from app.core.plan.merging.merge_plan import MergePlan
from app.core.plan.records.integers import encoder_of
from app.core.rules.accumulators import overflow
from app.core.table.keys import Key
from app.core.table.options.entries import Integers
from app.core.table.records import Record
from app.core.table.schema import TableSchema

Row = dict[str, Any]
_OUTSIDE = " (the total is outside the column's type until other records bring it back)"


@dataclass(frozen=True)
class ColumnStep:
    """The effect of a step on a column: before and after as JSON; ``late`` and ``ignored`` as in a ``Reason``."""

    column: str
    before: Any
    after: Any
    reason: str
    late: bool = False
    ignored: bool = False


@dataclass(frozen=True)
class ShownStep:
    """One step: the row before and after it as JSON, None if there is none, and its effect on each column."""

    before: Row | None
    after: Row | None
    columns: Sequence[ColumnStep]


@dataclass(frozen=True)
class Shown:
    """The columns of shown rows: those of ``schema``, or only those in ``names``, if given."""

    schema: TableSchema
    integers: Integers
    names: frozenset[str] | None = None

    @cached_property
    def encoders(self) -> Mapping[str, Callable[[Any], Any]]:
        """From a value to its JSON form, by column."""
        wanted = [c for c in self.schema.columns if self.names is None or c.name in self.names]
        return {column.name: encoder_of(column.type, self.integers) for column in wanted}

    def row(self, values: Mapping[str, Any], written: TableSchema) -> Row:
        """Return the values of a row under ``written`` as they are shown: columns are found by id."""
        named = values if written is self.schema else renamed(values, written, self.schema)
        return {name: encode(named[name]) for name, encode in self.encoders.items()}

    def key(self, key: Key) -> Row:
        """Return the key as an object of its columns."""
        columns = zip(self.schema.key_columns, key, strict=True)
        return {column.name: encoder_of(column.type, self.integers)(value) for column, value in columns}

    def names_of(self, written: TableSchema) -> Mapping[str, str]:
        """Return, per column under ``written`` that is shown, its name there."""
        called = {column.id: column.name for column in self.schema.columns if column.name in self.encoders}
        return {column.name: called[column.id] for column in written.columns if column.id in called}


class ShownFold:
    """The state row of one key under ``plan``, while its records are folded.

    ``strict``: a total outside its column's type raises ``Conflict``, as the merge would; else it is shown as null.
    """

    def __init__(self, plan: MergePlan, state: Mapping[str, Any] | None, shown: Shown, *, strict: bool = True) -> None:
        self.plan, self.state, self.shown, self.strict = plan, state, shown, strict

    def visible(self) -> Row | None:
        """Return the row as a reader sees it now, as JSON; None if it does not exist."""
        return self._seen()[0]

    def check(self, key: Mapping[str, Any]) -> None:
        """Raise ``Conflict`` that names ``key`` and column where a total is outside its column's type now."""
        state = self.state or {}
        for bounds in self.plan.totals:
            carried = state.get(bounds.carry)
            if carried is not None:
                raise overflow(bounds.column, key, endless=carried == bounds.endless)

    def _seen(self) -> tuple[Row | None, frozenset[str]]:
        """Return the row, and the columns without a value at present."""
        if self.state is None:
            return None, frozenset()
        outside: frozenset[str] = frozenset()
        try:
            row = finish(self.plan, self.state)
        except KeyfoldError:
            if self.strict:
                raise
            row, outside = self._without_totals(self.state)
        return None if row is None else self.shown.row(row, self.plan.schema), outside

    def _without_totals(self, state: Mapping[str, Any]) -> tuple[Row, frozenset[str]]:
        row = {name: state[name] for name in self.plan.schema.primary_key}
        outside: set[str] = set()
        for rule in self.plan.column_rules:
            try:
                row |= rule.finish(state)
            except KeyfoldError:
                names = [column.name for column in rule.columns]
                row |= dict.fromkeys(names)
                outside.update(names)
        return row, frozenset(outside)

    def fold(self, record: Record) -> None:
        """Fold a record, without an explanation."""
        lifted = lift(self.plan, record)
        self.state = lifted if self.state is None else combine(self.plan, self.state, lifted)

    def step(self, record: Record) -> ShownStep:
        """Fold a record, and say why each column changed or did not."""
        before = self.visible()
        why = reasons(self.plan, self.state, record)
        self.fold(record)
        after, outside = self._seen()
        called = self.shown.names_of(self.plan.schema)
        columns = [
            _column(called[name], before, after, _noted(reason, name in outside))
            for name, reason in why.items()
            if name in called
        ]
        return ShownStep(before, after, columns)


def _noted(reason: Reason, outside: bool) -> Reason:
    return Reason(reason.words + _OUTSIDE, reason.late, reason.ignored) if outside else reason


def _column(name: str, before: Row | None, after: Row | None, why: Reason) -> ColumnStep:
    return ColumnStep(name, (before or {}).get(name), (after or {}).get(name), why.words, why.late, why.ignored)


def size_of(value: Any) -> int:
    """Return about how many bytes a JSON value takes."""
    if isinstance(value, dict):
        return sum(len(name) + size_of(inner) for name, inner in value.items())
    if isinstance(value, list):
        return sum(map(size_of, value)) + len(value)
    return len(value) if isinstance(value, str) else 8
