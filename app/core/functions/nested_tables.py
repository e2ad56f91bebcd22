"""Aggregate functions over arrays of rows (merge-semantics §5.5, §5.6), each with both meanings side by side."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.functions.collections import Elements
from app.core.functions.equality import Key, key_of
from app.core.rules.spark_sql import bound_sql, comparable, indexes_sql, last_of_key_sql, literal, member, members
from app.core.rules.step_function import Fold, StepFunction
from app.core.types.datatype import DataType
from app.core.types.numbers import float_rank


@dataclass(frozen=True)
class NestedKey:
    """How the elements of a nested table are told apart (§5.5): key fields, what a null in them means, their order."""

    fields: tuple[str, ...]
    null_strategy: str = "merge"
    sequence: tuple[str, ...] = ()

    def of(self, element: Mapping[str, Any]) -> tuple[Any, ...]:
        """The element's key."""
        return tuple(element[name] for name in self.fields)

    def rank(self, element: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """What sorts elements of one key by their sequence, nulls first."""
        values = [element[name] for name in self.sequence]
        return [(0,) if v is None else (1, float_rank(v) if isinstance(v, float) else v) for v in values]

    def taken(self, elements: Sequence[Mapping[str, Any] | None]) -> list[Mapping[str, Any]]:
        """The elements that count: no nulls, and with the strategy ``ignore`` none with a null key."""
        ignore = self.null_strategy == "ignore"
        return [e for e in elements if e is not None and not (ignore and None in self.of(e))]

    def taken_sql(self, elements: str) -> str:
        """As ``taken``."""
        conditions = ["y IS NOT NULL"]
        if self.null_strategy == "ignore":
            conditions += [f"{member('y', name)} IS NOT NULL" for name in self.fields]
        return f"filter({elements}, y -> {' AND '.join(conditions)})"

    def same_sql(self, a: str, b: str) -> str:
        """Whether two elements have the same key."""
        return f"{members(a, self.fields)} <=> {members(b, self.fields)}"

    def fault(self, elements: Sequence[Mapping[str, Any] | None]) -> str | None:
        """Why the elements can never be folded."""
        if self.null_strategy == "error" and any(e is not None and None in self.of(e) for e in elements):
            return f"a nested key ({', '.join(self.fields)}) is null and nested-key-null-strategy is error"
        return None


class _Unkeyed(Elements):
    """Elements up to ``limit``; what is taken back goes with all that are equal to it."""

    def __init__(self, key: Key, limit: int | None) -> None:
        super().__init__(key)
        self._limit = limit
        self._held = 0

    def add(self, value: list[Any]) -> None:
        room = None if self._limit is None else max(self._limit - self._held, 0)
        taken = [item for item in value if item is not None][:room]
        self._held += len(taken)
        super().add(taken)

    def add_all(self, values: Sequence[list[Any]]) -> None:
        for value in values:
            self.add(value)

    def retract(self, value: list[Any]) -> None:
        for gone in value:
            places = self.places_of(gone) if gone is not None else []
            self._held -= len(places)
            for place in places:
                self.remove(place)
            places.clear()


def nested_update_unkeyed(column: DataType, limit: int | None) -> StepFunction:
    """Elements appended up to ``limit``; a retract removes all equal ones (§5.5)."""
    element = column.element_type
    key = key_of(element)

    def add_sql(a: str, v: str) -> str:
        empty = f"CAST(array() AS {column.spark})"
        joined = f"concat(coalesce({a}, {empty}), filter({v}, y -> y IS NOT NULL))"
        return joined if limit is None else f"slice({joined}, 1, greatest({limit}, size(coalesce({a}, {empty}))))"

    def adds_sql(values: str) -> str:
        joined = f"filter(flatten({values}), y -> y IS NOT NULL)"
        return joined if limit is None else f"slice({joined}, 1, {limit})"

    def retract_sql(a: str, v: str) -> str:
        return f"filter({a}, x -> NOT exists({v}, y -> {comparable(element, 'y')} <=> {comparable(element, 'x')}))"

    return StepFunction(lambda: _Unkeyed(key, limit), add_sql, retract_sql, adds_sql=adds_sql)


class _Keyed(Fold):
    """Elements by nested key, in the place of the first of each key; new keys up to ``limit``."""

    def __init__(self, column: DataType, nested: NestedKey, limit: int | None) -> None:
        types = {field.name: field.type for field in column.element_type.fields}
        self._nested = nested
        self._limit = limit
        self._keys = [(name, key_of(types[name])) for name in nested.fields]
        self._elements: dict[Hashable, Any] | None = None

    def _place(self, item: Mapping[str, Any]) -> Hashable:
        return tuple([key(item[name]) for name, key in self._keys])

    def add(self, value: list[Any]) -> None:
        kept = self._elements = {} if self._elements is None else self._elements
        for item in self._nested.taken(value):
            place = self._place(item)
            if place in kept:
                if not self._nested.sequence or self._nested.rank(item) >= self._nested.rank(kept[place]):
                    kept[place] = item
            elif self._limit is None or len(kept) < self._limit:
                kept[place] = item

    def retract(self, value: list[Any]) -> None:
        assert self._elements is not None, "something was added before"
        for item in self._nested.taken(value):
            self._elements.pop(self._place(item), None)

    @property
    def value(self) -> list[Any] | None:
        return None if self._elements is None else list(self._elements.values())


def nested_update(column: DataType, nested: NestedKey, limit: int | None) -> StepFunction:
    """Elements by key, later ones (or those of the larger sequence) replacing; new keys up to ``limit`` (§5.5)."""

    def add_sql(a: str, v: str) -> str:
        later = f" AND {members('y', nested.sequence)} >= {members('z', nested.sequence)}" if nested.sequence else ""
        replaced = f"transform(x, z -> IF({nested.same_sql('z', 'y')}{later}, y, z))"
        appended = "concat(x, array(y))"
        if limit is not None:
            appended = f"IF(size(x) < {limit}, {appended}, x)"
        step = f"IF(exists(x, z -> {nested.same_sql('z', 'y')}), {replaced}, {appended})"
        first = f"coalesce({a}, CAST(array() AS {column.spark}))"
        return f"aggregate({nested.taken_sql(v)}, {first}, (x, y) -> CAST({step} AS {column.spark}))"

    def adds_sql(values: str) -> str:
        ordered = indexes_sql("t", [members("e", nested.sequence), "i"]) if nested.sequence else None
        kept = f"transform({last_of_key_sql('t', members('y', nested.fields), ordered, 'y')}, y -> y.v)"
        # No key ever goes, so those that were let in are the first ones.
        kept = kept if limit is None else f"slice({kept}, 1, {limit})"
        return bound_sql(nested.taken_sql(f"flatten({values})"), "t", kept)

    def retract_sql(a: str, v: str) -> str:
        return f"filter({a}, x -> NOT exists({nested.taken_sql(v)}, z -> {nested.same_sql('z', 'x')}))"

    return StepFunction(
        lambda: _Keyed(column, nested, limit),
        add_sql,
        retract_sql,
        associative=limit is None,
        adds_sql=adds_sql,
        fault=nested.fault,
    )


class _Filled(Fold):
    """Elements by nested key, each field of which holds its latest value that is not null."""

    def __init__(self, nested: NestedKey, fields: Sequence[str]) -> None:
        self._nested = nested
        self._fields = fields
        self._elements: dict[Hashable, dict[str, Any]] | None = None

    def add(self, value: list[Any]) -> None:
        kept = self._elements = {} if self._elements is None else self._elements
        for item in self._nested.taken(value):
            old = kept.setdefault(self._nested.of(item), dict(item))
            for name in self._fields:
                if item[name] is not None:
                    old[name] = item[name]

    @property
    def value(self) -> list[Any] | None:
        return None if self._elements is None else list(self._elements.values())


def nested_partial_update(column: DataType, nested: NestedKey) -> StepFunction:
    """Elements by key, each nested field taking its latest value that is not null (§5.6)."""
    fields = [field.name for field in column.element_type.fields]

    def add_sql(a: str, v: str) -> str:
        filled = ", ".join(f"{literal(name)}, coalesce({member('y', name)}, {member('z', name)})" for name in fields)
        replaced = f"transform(x, z -> IF({nested.same_sql('z', 'y')}, named_struct({filled}), z))"
        step = f"IF(exists(x, z -> {nested.same_sql('z', 'y')}), {replaced}, concat(x, array(y)))"
        first = f"coalesce({a}, CAST(array() AS {column.spark}))"
        return f"aggregate({nested.taken_sql(v)}, {first}, (x, y) -> CAST({step} AS {column.spark}))"

    def adds_sql(values: str) -> str:
        key = f"struct({members('y', nested.fields)})"
        entry = f"struct({key} AS k, {{}} AS v)"
        latest = [
            f"map_values(map_from_entries(concat(transform(t, y -> {entry.format(member('y', name))}), "
            f"transform(filter(t, y -> {member('y', name)} IS NOT NULL), y -> {entry.format(member('y', name))}))))"
            for name in fields
        ]
        columns = ", ".join(f"'f{i}', {values}" for i, values in enumerate(latest))
        row = ", ".join(f"{literal(name)}, s.f{i}[i]" for i, name in enumerate(fields))
        rows = bound_sql(f"named_struct({columns})", "s", f"transform(s.f0, (y, i) -> named_struct({row}))")
        return bound_sql(nested.taken_sql(f"flatten({values})"), "t", rows)

    return StepFunction(lambda: _Filled(nested, fields), add_sql, adds_sql=adds_sql, fault=nested.fault)
