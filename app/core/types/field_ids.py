"""Ids of columns and of ROW fields: unique across a schema, as Paimon's clients demand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from app.core.types.datatype import DataType, walk_types


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
    """Hands out ids: the wanted one to whom asks first, the next free one afterwards."""

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
