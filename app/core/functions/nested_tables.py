"""Aggregate functions over arrays of rows."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.functions.collections import Elements
from app.core.functions.equality import Key, key_of
from app.core.rules.step_function import Fold, StepFunction
from app.core.types.datatype import DataType
from app.core.types.numbers import float_rank


@dataclass(frozen=True)
class NestedKey:
    """The key of the elements of a nested table: its fields, the treatment of a null in them, and their order."""

    fields: tuple[str, ...]
    null_strategy: str = "merge"
    sequence: tuple[str, ...] = ()

    def key(self, element: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the element's key."""
        return tuple(element[name] for name in self.fields)

    def rank(self, element: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Return the sort key of elements with one key: their sequence, nulls first."""
        values = [element[name] for name in self.sequence]
        return [(0,) if v is None else (1, float_rank(v) if isinstance(v, float) else v) for v in values]

    def taken(self, elements: Sequence[Mapping[str, Any] | None]) -> list[Mapping[str, Any]]:
        """Return the elements without nulls; with the strategy ``ignore`` also without those that have a null key."""
        ignore = self.null_strategy == "ignore"
        return [e for e in elements if e is not None and not (ignore and None in self.key(e))]

    def fault(self, elements: Sequence[Mapping[str, Any] | None]) -> str | None:
        """Return why the elements can never be folded; None if they can."""
        if self.null_strategy == "error" and any(e is not None and None in self.key(e) for e in elements):
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


def nested_update_unkeyed(column: DataType, limit: int | None, retracts: bool) -> StepFunction:
    """Return a fold that appends elements up to ``limit``; a retract removes all equal ones."""
    key = key_of(column.element_type)
    return StepFunction(lambda: _Unkeyed(key, limit), compares=retracts)


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
        elements = self._elements = {} if self._elements is None else self._elements
        for item in self._nested.taken(value):
            place = self._place(item)
            if place in elements:
                if not self._nested.sequence or self._nested.rank(item) >= self._nested.rank(elements[place]):
                    elements[place] = item
            elif self._limit is None or len(elements) < self._limit:
                elements[place] = item

    def retract(self, value: list[Any]) -> None:
        assert self._elements is not None, "something was added before"
        for item in self._nested.taken(value):
            self._elements.pop(self._place(item), None)

    @property
    def value(self) -> list[Any] | None:
        return None if self._elements is None else list(self._elements.values())


def nested_update(column: DataType, nested: NestedKey, limit: int | None) -> StepFunction:
    """Return a fold of elements by key, later ones (or those of the larger sequence) replacing; new keys up to
    ``limit``.
    """
    return StepFunction(lambda: _Keyed(column, nested, limit), associative=limit is None, fault=nested.fault)


class _Filled(Fold):
    """Elements by nested key, each field of which holds its latest value that is not null."""

    def __init__(self, nested: NestedKey, fields: Sequence[str]) -> None:
        self._nested = nested
        self._fields = fields
        self._elements: dict[Hashable, dict[str, Any]] | None = None

    def add(self, value: list[Any]) -> None:
        elements = self._elements = {} if self._elements is None else self._elements
        for item in self._nested.taken(value):
            old = elements.setdefault(self._nested.key(item), dict(item))
            for name in self._fields:
                if item[name] is not None:
                    old[name] = item[name]

    @property
    def value(self) -> list[Any] | None:
        return None if self._elements is None else list(self._elements.values())


def nested_partial_update(column: DataType, nested: NestedKey) -> StepFunction:
    """Return a fold of elements by key, each nested field taking its latest value that is not null."""
    fields = [field.name for field in column.element_type.fields]
    return StepFunction(lambda: _Filled(nested, fields), fault=nested.fault)
