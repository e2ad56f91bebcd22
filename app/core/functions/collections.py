"""Aggregate functions over arrays and maps."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from typing import Any

from app.core.functions.equality import Key, key_of
from app.core.rules.step_function import Fold, StepFunction
from app.core.types.datatype import DataType

_GONE = object()


class Elements(Fold):
    """Elements one behind the other; what is taken back is found by ``key``."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._elements: list[Any] = []
        self._begun = False
        self._places: defaultdict[Hashable, deque[int]] = defaultdict(deque)
        self._placed = 0  # how many elements are in _places: none before something is taken back

    def add(self, value: list[Any]) -> None:
        self._begun = True
        self._elements += value

    def add_all(self, values: Sequence[list[Any]]) -> None:
        self._begun = self._begun or bool(values)
        self._elements += chain.from_iterable(values)

    def retract(self, value: list[Any]) -> None:
        for gone in value:
            places = self.places_of(gone)
            if places:
                self.remove(places.popleft())

    def places_of(self, element: Any) -> deque[int]:
        """Return where the elements are that are equal to ``element``, first ones first."""
        for place in range(self._placed, len(self._elements)):
            self._places[self._key(self._elements[place])].append(place)
        self._placed = len(self._elements)
        return self._places[self._key(element)]

    def remove(self, place: int) -> None:
        """Take the element at ``place`` out."""
        self._elements[place] = _GONE

    @property
    def value(self) -> list[Any] | None:
        return [element for element in self._elements if element is not _GONE] if self._begun else None


class _DistinctElements(Fold):
    """Equal elements once, in the order they came."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._elements: dict[Hashable, Any] | None = None

    def add(self, value: list[Any]) -> None:
        elements = self._elements = {} if self._elements is None else self._elements
        for item in value:
            elements.setdefault(self._key(item), item)

    def retract(self, value: list[Any]) -> None:
        assert self._elements is not None, "something was added before"
        for gone in value:
            self._elements.pop(self._key(gone), None)

    @property
    def value(self) -> list[Any] | None:
        return None if self._elements is None else list(self._elements.values())


def collect(column: DataType, distinct: bool, retracts: bool) -> StepFunction:
    """Return a fold that joins arrays; with ``distinct`` equal elements come once, in the order they came."""
    key = key_of(column.element_type)
    start = (lambda: _DistinctElements(key)) if distinct else (lambda: Elements(key))
    return StepFunction(start, compares=distinct or retracts)


class _Entries(Fold):
    """Entries of maps by key; the latest value counts, in the place and under the spelling of the first."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._entries: dict[Hashable, tuple[Any, Any]] | None = None

    def add(self, value: list[tuple[Any, Any]]) -> None:
        self._entries = {} if self._entries is None else self._entries
        for k, v in value:
            self.put(self._entries, self._key(k), k, v)

    def put(self, entries: dict[Hashable, tuple[Any, Any]], place: Hashable, k: Any, v: Any) -> None:
        """Set the value of a map key."""
        stored = entries.get(place)
        entries[place] = (k if stored is None else stored[0], v)

    def retract(self, value: list[tuple[Any, Any]]) -> None:
        assert self._entries is not None, "something was added before"
        for k, _ in value:
            self._entries.pop(self._key(k), None)

    @property
    def value(self) -> list[tuple[Any, Any]] | None:
        return None if self._entries is None else list(self._entries.values())


class _TimedEntries(_Entries):
    """As ``_Entries``, but the latest time counts; a null row removes its key."""

    def __init__(self, key: Key, time_field: str, rank: Callable[[Any], Any]) -> None:
        super().__init__(key)
        self._time = time_field
        self._rank = rank

    def put(self, entries: dict[Hashable, tuple[Any, Any]], place: Hashable, k: Any, v: Any) -> None:
        if v is None:
            entries.pop(place, None)
        elif v[self._time] is not None:
            _, stored = entries.get(place, (k, None))
            if stored is None or self._rank(v[self._time]) > self._rank(stored[self._time]):  # a stored row has a time
                super().put(entries, place, k, v)


def merge_map(column: DataType) -> StepFunction:
    """Return a fold that unites the maps' entries, later values winning; a retract removes its keys."""
    key = key_of(column.key_type)
    return StepFunction(lambda: _Entries(key))


def merge_map_with_keytime(column: DataType, time_field: str) -> StepFunction:
    """Return a fold that keeps per map key the row with the latest time, the first of equal times (Q16).

    A null row removes its key. Times are ordered as those of a sequence field are: NaN is the latest.
    """
    key = key_of(column.key_type)
    times = {field.name: field.type for field in column.element_type.fields}
    rank = times[time_field].entry.rank
    removes = column.element_type.nullable
    return StepFunction(lambda: _TimedEntries(key, time_field, rank), associative=not removes)
