"""Which columns of a Parquet file get dictionaries: those that are smaller with one, by what is in their first rows.

Arrow makes one for each column that it is asked for, and keeps it where every value comes once: the values stand in it
and their numbers beside it. Spark's writer looks first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_LOOKED_AT: Final = 16_384  # rows: about a millisecond a column
_MOST_BYTES: Final = 2**20  # of a dictionary; the values beyond that are written as they are


def columns_with_dictionaries(rows: pa.Table) -> list[str]:
    """Return the paths of columns, by the first of some rows that come in no order of their values. What is in an ARRAY
    or a MAP gets one whatever it is.
    """
    looked_at = rows.slice(0, _LOOKED_AT)
    without = {path for name in rows.column_names for path in _without(name, looked_at[name])}
    return [path for path in _paths(rows.schema) if path not in without]


def _without(path: str, values: pa.ChunkedArray) -> Iterator[str]:
    if pa.types.is_struct(values.type):
        for place, member in enumerate(values.type):
            yield from _without(f"{path}.{member.name}", pc.struct_field(values, [place]))
    elif not _pays(values):
        yield path


def _paths(schema: pa.Schema) -> list[str]:
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    columns = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    return [columns.column(place).path for place in range(len(columns.names))]


def _pays(values: pa.ChunkedArray) -> bool:
    count = len(values) - values.null_count
    if not count or pa.types.is_nested(values.type) or pa.types.is_boolean(values.type):
        return True
    distinct = pc.count_distinct(values, mode="only_valid").as_py()
    size = _bytes(values, count)
    dictionary, numbers = size * distinct / count, count * int(distinct).bit_length() / 8
    return bool(dictionary <= _MOST_BYTES and dictionary + numbers < size)


def _bytes(values: pa.ChunkedArray, count: int) -> int:
    """Return what the values take in a file as they are."""
    if pa.types.is_binary(values.type) or pa.types.is_string(values.type):
        return int(pc.sum(pc.binary_length(values)).as_py()) + 4 * count
    return int(count * values.type.bit_width // 8)
