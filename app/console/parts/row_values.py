"""The values of a row, each with the records that it came from; neighbours of one source say it once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from app.services.explaining.explained import ExplainedColumn, RecordPlace

# The newest records of a source that are listed; older ones are counted.
MOST_RECORDS: Final = 5


@dataclass(frozen=True)
class ValueSource:
    """The origin of a value: ``records``, oldest first, and the number ``left_out`` of older ones.

    ``start``: the value, or a part of it, comes from the start of the explanation. ``key``: the column is in the key.
    """

    records: tuple[RecordPlace, ...] = ()
    left_out: int = 0
    start: bool = False
    key: bool = False

    @property
    def newest(self) -> Sequence[RecordPlace]:
        """The records that are named."""
        return self.records[-MOST_RECORDS:]

    @property
    def older(self) -> int:
        """How many others there are."""
        return self.left_out + len(self.records) - len(self.newest)


@dataclass(frozen=True)
class RowValue:
    """A column of a row, and its ``source``; ``span`` is the number of columns that share its source from here on, 0
    if an earlier one says it.
    """

    name: str
    value: Any
    source: ValueSource
    span: int


def row_values(row: Mapping[str, Any], key: Collection[str], columns: Sequence[ExplainedColumn]) -> Sequence[RowValue]:
    """Return the columns of ``row`` in its order."""
    explained = {column.column: column for column in columns}
    sources = [(name, ValueSource(key=True) if name in key else _source(explained.get(name))) for name in row]
    values = []
    for source, run in groupby(sources, key=lambda one: one[1]):
        names = [name for name, _ in run]
        spans = [len(names), *[0] * (len(names) - 1)]
        values += [RowValue(name, row[name], source, span) for name, span in zip(names, spans, strict=True)]
    return values


def _source(column: ExplainedColumn | None) -> ValueSource:
    return ValueSource() if column is None else ValueSource(tuple(column.records), column.left_out, column.start)
