"""The encodings of the columns of a Parquet file: which get dictionaries, and how numbers are written without one.

Arrow makes a dictionary for each requested column, and keeps it even if every value is unique: then it holds all
values, and the column their numbers. Spark's writer checks first. So here a column gets a dictionary if its first rows
are smaller with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from app.core.table.records import TOKEN_COLUMN

# How staging files of many records are written. Of other columns statistics would cost more than they are worth.
STAGED: Final[Mapping[str, Any]] = {
    "compression": "zstd",
    "write_statistics": [TOKEN_COLUMN],
    "write_page_checksum": True,
}
_SORTED_TOKENS: Final[Mapping[str, str]] = {TOKEN_COLUMN: "DELTA_BINARY_PACKED"}
_LEAST_BITS: Final = 32  # smaller ones are stored in as many
_LOOKED_AT: Final = 16_384  # rows: about a millisecond a column
# Largest dictionary; the values beyond that are written without it.
_MOST_BYTES: Final = 2**20


def columns_with_dictionaries(rows: pa.Table) -> list[str]:
    """Return the paths of columns that get a dictionary, by a sample of rows in random order. Columns in an ARRAY or a
    MAP always get one.
    """
    looked_at = rows.slice(0, _LOOKED_AT)
    without = {path for name in rows.column_names for path in _without(name, looked_at[name])}
    return [path for path in _paths(rows.schema) if path not in without]


def columns_with_statistics(schema: pa.Schema) -> list[str]:
    """Return the columns whose statistics are written in files that other systems read: flat ones without NaN.

    NaN is outside the bounds of a column, but DuckDB and Spark take it for the largest value. They would leave out a
    row group where only a NaN meets a filter.
    """
    return [
        field.name for field in schema if not pa.types.is_nested(field.type) and not pa.types.is_floating(field.type)
    ]


def encodings_of_shared(dictionaries: Collection[str]) -> dict[str, str]:
    """Return how tokens are encoded in files that other systems read: nothing looks them up, so that any encoding is
    good.
    """
    return {} if TOKEN_COLUMN in dictionaries else dict(_SORTED_TOKENS)


def encodings_of_own(schema: pa.Schema, dictionaries: Collection[str] = ()) -> dict[str, str]:
    """Return how numbers and times are encoded in files that only Keyfold reads, except columns with ``dictionaries``.

    So zstd makes them a tenth smaller, in the same time. Spark before 4.3 cannot read this, so runs use others.
    """
    split = (field for field in schema if _is_split(field.type) and "." not in field.name)
    encodings = {field.name: "BYTE_STREAM_SPLIT" for field in split if field.name not in dictionaries}
    return {**encodings, **_SORTED_TOKENS}


def _is_split(data_type: pa.DataType) -> bool:
    whole = pa.types.is_integer(data_type) and data_type.bit_width >= _LEAST_BITS
    return bool(whole or pa.types.is_date(data_type) or pa.types.is_time(data_type) or pa.types.is_timestamp(data_type))


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
    """Return the size of the values in a file without encoding, in bytes."""
    if pa.types.is_binary(values.type) or pa.types.is_string(values.type):
        return int(pc.sum(pc.binary_length(values)).as_py()) + 4 * count
    return int(count * values.type.bit_width // 8)
