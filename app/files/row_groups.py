"""Row groups of staging files: records by token, those of one token in arrival order.

A reader of one range of tokens skips the row groups of the others by their statistics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from app.core.plan.records.record_decoder import DecodedRecords
from app.core.table.records import KIND_COLUMN, POSITION_COLUMN, TOKEN_COLUMN
from app.core.table.schema import TableSchema
from app.files.arrow import staged_file_schema, staging_schema
from app.files.tokens import FEW, Tokens, order_of, tokens_of

# Records of this size in memory are sorted together.
GATHERED_BYTES: Final = 2**24
# Ranges of equal length, like those of tasks. Reading a smaller row group takes as long as skipping rows of others.
_MOST_GROUPS: Final = 8
_GROUP_ROWS: Final = 4096
_GROUP_BYTES: Final = 2**21
_NARROW_ROWS: Final = 64  # whose size need not be known


def row_groups(schema: TableSchema, pieces: Iterable[DecodedRecords]) -> Iterator[pa.Table]:
    """Return the records of a body in row groups; small pieces are sorted together."""
    gathered: list[pa.Table] = []
    size = 0
    for piece in pieces:
        if gathered:
            size += gathered[-1].nbytes
            if size >= GATHERED_BYTES:
                yield from _sorted_groups(gathered)
                size = 0
        gathered.append(_with_tokens(schema, piece))
    yield from _sorted_groups(gathered)


def _with_tokens(schema: TableSchema, piece: DecodedRecords) -> pa.Table:
    columns = {**piece.columns, KIND_COLUMN: piece.kinds, POSITION_COLUMN: piece.positions, **piece.words}
    if len(piece) < FEW and all(isinstance(values, list) for values in columns.values()):
        return _few(schema, columns)
    rows = pa.table(columns, schema=staging_schema(schema))
    return pa.Table.from_arrays([tokens_of(schema, rows), *rows.columns], schema=staged_file_schema(schema))


def _few(schema: TableSchema, columns: Mapping[str, list[Any]]) -> pa.Table:
    """Return a table of few records, sorted by token in Python: Arrow's sort takes longer to start than this."""
    arrow_schema = staging_schema(schema)
    keys = zip(*(columns[name] for name in schema.primary_key), strict=True)
    tokens = tokens_of(schema, _by_rows(keys, pa.schema([arrow_schema.field(name) for name in schema.primary_key])))
    records = zip(tokens.tolist(), *(columns[name] for name in arrow_schema.names), strict=True)
    return _by_rows(sorted(records, key=itemgetter(0)), staged_file_schema(schema))


def _by_rows(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """Return rows as columns; converting them together takes a fifth of the time of single columns."""
    return pa.Table.from_arrays(pa.array(rows, pa.struct(list(schema))).flatten(), schema=schema)


def _sorted_groups(gathered: list[pa.Table]) -> Iterator[pa.Table]:
    """Yield the gathered records as sorted row groups. The list is emptied, so that memory is freed early."""
    rows = pa.concat_tables(gathered).combine_chunks() if len(gathered) > 1 else gathered[0]
    gathered.clear()
    tokens = rows.column(TOKEN_COLUMN).to_numpy()
    order = order_of(tokens) if (tokens[1:] < tokens[:-1]).any() else None
    tokens = tokens if order is None else tokens[order]
    start = 0
    for end in _ends(tokens, _group_bits(rows)):
        if end > start or not len(rows):
            yield rows.slice(start, end - start) if order is None else rows.take(pa.array(order[start:end]))
        start = end


def _ends(tokens: Tokens, bits: int) -> Sequence[int]:
    """Return the end of each range of ascending ``tokens``."""
    if not bits:
        return [len(tokens)]
    lasts = (np.arange(1, 2**bits) - 2 ** (bits - 1)) << (64 - bits)
    return [*np.searchsorted(tokens, lasts).tolist(), len(tokens)]


def _group_bits(rows: pa.Table) -> int:
    """Return into how many halves of halves the tokens are cut."""
    if len(rows) < _NARROW_ROWS:
        return 0
    most: int = max(1, len(rows) // _GROUP_ROWS, rows.nbytes // _GROUP_BYTES)
    return min(_MOST_GROUPS, most).bit_length() - 1
