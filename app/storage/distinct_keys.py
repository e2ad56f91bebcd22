"""Whether a key comes twice in staged batches: their keys are read, and nothing else of them (docs/decisions/0043)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from app.core.table.history import Batch
from app.core.table.schema import TableSchema
from app.core.types.kinds import Family
from app.storage.layout import Warehouse
from app.storage.named_files import file_of_batch, opened_parquet

MOST_KEY_BYTES = 32 * 1024**2  # decoded; to compare them takes a few times as much memory


def keys_are_distinct(
    warehouse: Warehouse, batches: Sequence[Batch], schema: TableSchema, most_bytes: int = MOST_KEY_BYTES
) -> bool:
    """Whether no key comes twice in all of ``batches``, which were written under ``schema``; false also where nobody
    looked: keys that are equal in several forms, or that take more than ``most_bytes``.

    Raises ``DamagedFile``, and ``Unavailable`` when a store does not answer.
    """
    if any(column.type.family is Family.FLOATING for column in schema.key_columns):  # -0.0 and 0.0 are one key
        return False
    names, parts, left = list(schema.primary_key), [], most_bytes
    for batch in batches:
        with opened_parquet(warehouse, file_of_batch(batch)) as parquet:
            left -= sum(_bytes_of_keys(parquet.metadata, names))
            if left < 0:
                return False
            parts.append(parquet.read(names, use_threads=False).select(names))
    keys = pa.concat_tables(parts)
    return bool(keys.group_by(names, use_threads=False).aggregate([]).num_rows == keys.num_rows)


def _bytes_of_keys(footer: pq.FileMetaData, names: Sequence[str]) -> Iterator[int]:
    """The bytes, decoded, of the columns ``names``, a number for each row group of each."""
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema in names:
                yield column.total_uncompressed_size
