"""Ids of columns, of ROW fields and of all places in files: unique across a schema, as Paimon's clients demand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import xxhash

from app.core.types.datatype import DataType, Field, walk_types

# Paimon's numbers of what is inside lists and maps (SpecialFields): above and below a base, by column id and depth.
_INNER_IDS, _MOST_DEPTH, _MOST_NUMBERED = 2**29 - 1, 2**10, 2**18
# Above all of these, below Paimon's system fields.
_HASHED_IDS, _HASHED_COUNT = 2**30, 2**30 - 2**16
LARGEST_ID: Final = _HASHED_IDS + _HASHED_COUNT - 1


def with_unique_ids(columns: Sequence[tuple[int, DataType]]) -> list[tuple[int, DataType]]:
    """Return the (id, type) of each column with no id used twice, at any depth.

    An id stays where it is met first: columns in order, then ROW fields depth-first, a field before those inside it.
    Each later use gets the next id above all ids of the schema. So the ids of a schema without twins never change.
    """
    ids = _Ids(_all_ids(columns))
    tops = [ids.claim(column_id) for column_id, _ in columns]
    return [(top, ids.renumber(data_type)) for top, (_, data_type) in zip(tops, columns, strict=True)]


def _all_ids(columns: Sequence[tuple[int, DataType]]) -> Iterable[int]:
    for column_id, data_type in columns:
        yield column_id
        yield from (field.id for inner in walk_types(data_type) for field in inner.fields)


class _Ids:
    """Assigns ids: a requested id to the first that requests it, otherwise the next free one."""

    def __init__(self, present: Iterable[int]) -> None:
        self._next = max(present, default=-1) + 1
        self._claimed: set[int] = set()

    def claim(self, wanted: int) -> int:
        if wanted < 0 or wanted in self._claimed:
            wanted, self._next = self._next, self._next + 1
        self._claimed.add(wanted)
        return wanted

    def renumber(self, data_type: DataType) -> DataType:
        key = None if data_type.key is None else self.renumber(data_type.key)
        element = None if data_type.element is None else self.renumber(data_type.element)
        fields = []
        for field in data_type.fields:
            number = self.claim(field.id)  # before what is inside it
            fields.append(replace(field, id=number, type=self.renumber(field.type)))
        return replace(data_type, key=key, element=element, fields=tuple(fields))


class Place(Protocol):
    """A place of a schema, of which the id is to be known."""

    @property
    def id(self) -> int:
        """The Parquet field id."""

    def member(self, field: Field) -> Place:
        """Return the place of a field of a ROW."""

    def inside(self, part: str) -> Place:
        """Return the place of an ``element``, ``key`` or ``value``."""


@dataclass(frozen=True)
class OfColumn:
    """A column or ROW field that has an id, and the ``path`` from it through lists and maps.

    Elements, keys and values have the ids that Paimon gives them, if Paimon gives each a separate one.
    """

    own_id: int
    path: tuple[str, ...] = ()

    @property
    def id(self) -> int:
        """As ``Place``."""
        if not self.path:
            return self.own_id
        if self.own_id >= _MOST_NUMBERED or "key" in self.path[:-1]:
            return _hashed_id(".".join((str(self.own_id), *self.path)))
        place = self.own_id * _MOST_DEPTH + len(self.path)
        return _INNER_IDS - place if self.path[-1] == "key" else _INNER_IDS + place

    def member(self, field: Field) -> OfColumn:
        """Return the place of a field of the ROW."""
        return OfColumn(field.id)

    def inside(self, part: str) -> OfColumn:
        """Return the place of an ``element``, ``key`` or ``value``."""
        return OfColumn(self.own_id, (*self.path, part))


@dataclass(frozen=True)
class OfHidden:
    """A hidden column, or a place in it: its name and path decide, for any columns come and go.

    ``in_row``: it is inside the ROW that it alone has, whose members have names that never change. Below these are
    users' types, whose fields have ids.
    """

    path: str
    in_row: bool = False

    @property
    def id(self) -> int:
        """As ``Place``."""
        return _hashed_id(self.path)

    def member(self, field: Field) -> OfHidden:
        """Return the place of a field of the ROW."""
        name = field.id if self.in_row and field.id >= 0 else field.name
        return OfHidden(f"{self.path}.{name}", in_row=True)

    def inside(self, part: str) -> OfHidden:
        """Return the place of an ``element``, ``key`` or ``value``."""
        return OfHidden(f"{self.path}.{part}", self.in_row)


def _hashed_id(path: str) -> int:
    return _HASHED_IDS + xxhash.xxh3_64_intdigest(path.encode()) % _HASHED_COUNT
